package main

import "syscall"

// childAttributes keep Ctrl-C of a terminal away from a child, which is stopped
// in order instead, and let the kernel kill it if this process dies without.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
