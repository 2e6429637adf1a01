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
	if err := tryLock(file); err == nil {
		return func() { _ = file.Close() }, nil
	} else if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}

	p.report("waiting for another process that is building it")
	defer p.reportPeriodically("still waiting for the other process")()
	// A blocking flock can't be canceled, so poll.
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s: %w", path, ctx.Err())
		case <-tick.C:
		}
		err := tryLock(file)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
	}
}

func tryLock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
