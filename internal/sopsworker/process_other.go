//go:build !linux

package sopsworker

import "os/exec"

// killWithParent does nothing on this system.
func killWithParent(*exec.Cmd) {}

// limitProcess does nothing on this system.
func limitProcess(int, int64) {}
