package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// loadVariable is the environment variable that makes "testrun exec" pause tests.
const loadVariable = "KSCTL_TEST_LOAD"

const (
	// longestPause is shorter than the leases in the suites, and longer than the delays of a busy
	// scheduler.
	longestPause   = 3 * time.Second
	longestBetween = 10 * time.Second
)

// startLoad keeps every CPU busy until stop is called.
func startLoad(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for ctx.Err() == nil {
				for range 1_000_000 { //nolint:revive // the empty loop keeps the CPU busy
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// pauseAtRandom stops and resumes a process at random times until stop is called.
func pauseAtRandom(pid int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for wait(ctx, rand.N(longestBetween)) {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			wait(ctx, rand.N(longestPause))
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// wait waits for d. It returns false if ctx is done first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
