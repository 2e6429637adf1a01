package ksctl

import (
	"os/exec"
	"syscall"
)

// attach has the kernel kill ksctl when this process dies. It stays in this process' group, which the
// agent kills as a whole.
func attach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
