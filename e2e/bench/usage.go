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

// ticks is USER_HZ of Linux.
const ticks = 100

// usage of processes and everything that they have started.
type usage struct {
	cpu, workers time.Duration
	peak         int64 // bytes: the largest resident set of each since it was forgotten, added up, what they share once
}

// tree are processes and their descendants, themselves first.
func tree(roots []int) []int {
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

// look reads what processes and their descendants have used so far.
func look(roots []int) usage {
	var u usage
	for i, pid := range tree(roots) {
		own, waited := times(pid)
		u.cpu += own + waited
		if i >= len(roots) {
			u.workers += own
		}
		u.workers += waited
		u.peak += memory(pid, "VmHWM:")
		if i > 0 { // the file that it runs is the same, and in memory once
			u.peak -= memory(pid, "RssFile:")
		}
	}
	return u
}

// times that a process spent on processors, and that its ended children did.
func times(pid int) (own, waited time.Duration) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var n [4]int
	for i := range n {
		n[i], _ = strconv.Atoi(fields[11+i])
	}
	return time.Duration(n[0]+n[1]) * time.Second / ticks, time.Duration(n[2]+n[3]) * time.Second / ticks
}

// memory of a process in bytes, by its name in /proc.
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

// forgetPeak makes what is resident now the peak. Without the right to, the
// peak is that of the whole life.
func forgetPeak(roots []int) {
	for _, pid := range tree(roots) {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
}

// sampler keeps the highest peak of all processes together, also of those that
// end meanwhile. Each sample forgets it: what two had at different times is no peak.
type sampler struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
	peak int64
}

// sample watches processes until the sampler is asked for its result; pids may
// change while it runs, and there may be none.
func sample(ctx context.Context, pids func() []int) *sampler {
	ctx, stop := context.WithCancel(ctx)
	s := &sampler{stop: stop}
	s.wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			roots := pids()
			s.peak = max(s.peak, look(roots).peak)
			forgetPeak(roots)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return s
}

// result is the highest peak that was seen.
func (s *sampler) result() int64 {
	s.stop()
	s.wg.Wait()
	return s.peak
}
