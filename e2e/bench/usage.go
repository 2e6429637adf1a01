package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// userHZ is USER_HZ of Linux: the clock ticks per second in /proc.
const userHZ = 100

// usage is the resource usage of processes and their descendants.
type usage struct {
	cpu, workers time.Duration // CPU time in total, and of the descendants
	peakRSS      int64         // sum of the peak resident sets since the last reset, in bytes; the shared executable counts once
}

// processTree returns processes and their descendants, the processes first.
func processTree(roots []int) []int {
	all := slices.Clone(roots)
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, list := range lists {
			data, _ := os.ReadFile(list) // a thread may have ended
			for _, field := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(field); err == nil && !slices.Contains(all, pid) {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// readUsage returns the usage of processes and their descendants so far.
func readUsage(roots []int) usage {
	var u usage
	for i, pid := range processTree(roots) {
		own, waited := cpuTimes(pid)
		u.cpu += own + waited
		if i >= len(roots) {
			u.workers += own
		}
		u.workers += waited
		u.peakRSS += memory(pid, "VmHWM:")
		if i > 0 { // all processes run the same executable, which is in memory once
			u.peakRSS -= memory(pid, "RssFile:")
		}
	}
	return u
}

// cpuTimes returns the CPU time of a process, and that of its terminated children.
func cpuTimes(pid int) (own, waited time.Duration) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var n [4]int
	for i := range n {
		n[i], _ = strconv.Atoi(fields[11+i])
	}
	return time.Duration(n[0]+n[1]) * time.Second / userHZ, time.Duration(n[2]+n[3]) * time.Second / userHZ
}

// memory returns a memory value of a process in bytes, by its name in /proc/<pid>/status.
func memory(pid int, name string) int64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, name); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// resetPeak sets the peak resident set of processes to the current one. Without permission to do
// so, the peak stays that of the process' lifetime.
func resetPeak(roots []int) {
	for _, pid := range processTree(roots) {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
}

// sampler measures the highest total peak of all processes, including processes that end during the
// measurement. It resets the peak after each sample, because peaks of two processes at different
// times must not be added.
type sampler struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
	peak int64
}

// startSampler samples processes until result is called. The result of pids may change or be empty
// in the meantime.
func startSampler(ctx context.Context, pids func() []int) *sampler {
	ctx, stop := context.WithCancel(ctx)
	s := &sampler{stop: stop}
	s.wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			roots := pids()
			s.peak = max(s.peak, readUsage(roots).peakRSS)
			resetPeak(roots)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return s
}

// result stops the sampler and returns the highest total peak.
func (s *sampler) result() int64 {
	s.stop()
	s.wg.Wait()
	return s.peak
}
