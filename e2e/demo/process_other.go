//go:build !linux

package main

import "syscall"

// childAttributes keep Ctrl-C of a terminal away from a child, which is stopped
// in order instead.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
