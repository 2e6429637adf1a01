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

	"github.com/ksctl/gitops/e2e/procstat"
)

// usage is the resource usage of processes and their descendants.
type usage struct {
	cpu, workers time.Duration // CPU time in total, and of the descendants
	// sum of the peak resident sets since the last reset, in bytes; the shared executable counts
	// once
	peakRSS int64
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
		own, waited := procstat.CPUTime(pid)
		u.cpu += own + waited
		if i >= len(roots) {
			u.workers += own
		}
		u.workers += waited
		u.peakRSS += procstat.Memory(pid, "VmHWM")
		if i > 0 { // all processes run the same executable, which is in memory once
			u.peakRSS -= procstat.Memory(pid, "RssFile")
		}
	}
	return u
}

// resetPeak sets the peak resident set of processes to the current one. Without permission to do
// so, the peak stays that of the process' lifetime.
func resetPeak(roots []int) {
	for _, pid := range processTree(roots) {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
}

// startSampler measures the highest total peak of all processes, including processes that end
// during the measurement, until result is called. It resets the peak after each sample, because
// peaks of two processes at different times must not be added. The result of pids may change or be
// empty in the meantime.
func startSampler(ctx context.Context, pids func() []int) (result func() int64) {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var peak int64
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			roots := pids()
			peak = max(peak, readUsage(roots).peakRSS)
			resetPeak(roots)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() int64 {
		stop()
		wg.Wait()
		return peak
	}
}
