//go:build !linux

package cluster

import "syscall"

// ChildAttributes give a child a process group of its own, so that Ctrl-C in a
// terminal reaches the suite alone, which then stops its children in order.
// A suite that dies without doing so leaves them to the next start.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
