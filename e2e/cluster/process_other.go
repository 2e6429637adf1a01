//go:build !linux

package cluster

import "syscall"

// ChildAttributes returns attributes that put a child into its own process group, so that Ctrl-C in
// a terminal reaches only the suite, which then stops its children in order. If the suite dies
// without stopping them, the next start kills them.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
