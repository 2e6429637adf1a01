package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ticks is USER_HZ of Linux.
const ticks = 100

// usage of a process and everything that it has started.
type usage struct {
	cpu, workers time.Duration
	peak         int64 // bytes: the largest resident set of each, added up, what they share once
}

// tree are a process and its descendants, itself first.
func tree(root int) []int {
	all := []int{root}
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, list := range lists {
			data, _ := os.ReadFile(list) // a thread may have ended
			for _, field := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(field); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// look reads what a process and its descendants have used so far.
func look(root int) usage {
	var u usage
	for i, pid := range tree(root) {
		own, waited := times(pid)
		u.cpu += own + waited
		if i > 0 {
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
func forgetPeak(root int) {
	for _, pid := range tree(root) {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
}

// sampler keeps the highest peak, also of processes that end meanwhile.
type sampler struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
	peak int64
}

// sample watches a process until the sampler is asked for its result; pid may
// change while it runs, and be 0.
func sample(ctx context.Context, pid func() int) *sampler {
	ctx, stop := context.WithCancel(ctx)
	s := &sampler{stop: stop}
	s.wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			if p := pid(); p != 0 {
				s.peak = max(s.peak, look(p).peak)
			}
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
