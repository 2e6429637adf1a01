//go:build !linux

package main

import (
	"syscall"
	"time"
)

// adoptOrphans does nothing: only Linux has subreapers.
func adoptOrphans() {}

func reapOrphans() {}

// childrenCPU is the processor time of all processes that this one has waited for.
func childrenCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
