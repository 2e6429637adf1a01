//go:build !linux

package renderworker

import (
	"os"
	"os/exec"
	"runtime"
)

// confine can do nothing here.
func confine(settings) string { return "nothing is given up on " + runtime.GOOS }

// attach can do nothing here; a worker ends when its standard input does.
func attach(*exec.Cmd) {}

// sealInherited can do nothing here.
func sealInherited() {}

// resident is not known here.
func resident(int) int64 { return 0 }

// peak is not known here.
func peak(*os.ProcessState) int64 { return 0 }

func self() (string, error) { return os.Executable() }
