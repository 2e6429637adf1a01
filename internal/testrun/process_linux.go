package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of descendants whose parent exits.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// reapOrphans reaps adopted processes that have exited. A suite stops those that still run when it
// starts the next time.
func reapOrphans() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != nil || pid == 0 {
			return
		}
	}
}
