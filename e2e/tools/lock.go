package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lock acquires an exclusive lock on a file and returns a function that releases it. The kernel
// releases the lock if the process dies. While another process holds the lock, lock reports that to
// p. Canceling ctx ends the wait.
func lock(ctx context.Context, path string, p *reporter) (release func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	// A blocking flock can't be canceled, so poll.
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for waiting := false; ; {
		switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return func() { _ = file.Close() }, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, fmt.Errorf("locking %s: %w", path, err)
		case !waiting:
			waiting = true
			p.report("waiting for another process that is building it")
			defer p.reportPeriodically("still waiting for the other process")()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}
