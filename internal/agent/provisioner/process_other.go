//go:build !linux

package provisioner

import "os/exec"

func configureProcess(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }
