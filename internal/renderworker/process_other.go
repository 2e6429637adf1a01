//go:build !linux

package renderworker

import (
	"os"
	"os/exec"
	"runtime"
)

// sandbox applies no restrictions on this system.
func sandbox(settings) string { return "sandboxing is not supported on " + runtime.GOOS }

// killWithParent does nothing on this system. A worker exits when its standard input is closed.
func killWithParent(*exec.Cmd) {}

// closeInheritedOnExec does nothing on this system.
func closeInheritedOnExec() {}

// residentBytes returns 0: the memory of a process is unknown on this system.
func residentBytes(int) int64 { return 0 }

// peakBytes returns 0: the memory of a process is unknown on this system.
func peakBytes(*os.ProcessState) int64 { return 0 }

func executable() (string, error) { return os.Executable() }
