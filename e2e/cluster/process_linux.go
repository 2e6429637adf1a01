package cluster

import "syscall"

// ChildAttributes returns attributes that put a child into its own process group, so that Ctrl-C in
// a terminal reaches only the suite, which then stops its children in order. The kernel kills the
// child if the suite dies without stopping it.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
