package main

import "syscall"

// childAttributes returns attributes that put a child into its own process group, so that Ctrl-C in
// a terminal does not reach it and the demo stops it in order. The kernel kills the child if the
// demo dies without stopping it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
