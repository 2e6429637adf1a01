package ksctl

import (
	"os/exec"
	"syscall"
)

// killWithParent makes the kernel kill ksctl when this process dies. ksctl stays in the process
// group of this process, which the agent kills as a whole.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
