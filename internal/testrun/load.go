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
	// A pause is shorter than the leases of the suites, and longer than what a busy
	// scheduler does.
	longestPause   = 3 * time.Second
	longestBetween = 10 * time.Second
)

// startLoad keeps every processor busy until the function that it returns is called.
func startLoad(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for ctx.Err() == nil {
				for range 1_000_000 { //nolint:revive // being busy is the purpose
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// pauseAtRandom stops a process now and then, and resumes it.
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

// wait returns false if the context ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
