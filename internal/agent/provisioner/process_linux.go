package provisioner

import (
	"os/exec"
	"syscall"
)

// attach gives the program a process group of its own, which is killed when its context ends, and
// has the kernel kill the program when this process dies: what would begin again at the next start
// must not still be going on.
func attach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
}

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
