package provisioner

import (
	"os/exec"
	"syscall"
)

// configureProcess starts the program in its own process group, which is killed when the context
// ends. The kernel kills the program when this process dies: the agent repeats the request at its
// next start, and the old program must not run beside the new one.
func configureProcess(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
}

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
