package cluster

import "syscall"

// ChildAttributes give a child a process group of its own, so that Ctrl-C in a
// terminal reaches the suite alone, which then stops its children in order;
// and let the kernel kill the child if the suite dies without doing so.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
