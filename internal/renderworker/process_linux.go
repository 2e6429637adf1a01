package renderworker

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// killWithParent makes the kernel kill the child when this process dies. The kernel also does so
// when the thread that started the child exits, but Go only ends threads that are locked to a
// goroutine.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// closeInheritedOnExec prevents children from inheriting the files that this process inherited.
// Files that Go opens have the flag already.
func closeInheritedOnExec() {
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// residentBytes returns the resident memory of a process; 0 if it exited.
func residentBytes(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// peakBytes returns the peak resident memory of a process that exited.
func peakBytes(s *os.ProcessState) int64 {
	usage, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss << 10
}

// executable returns a path of this program that is valid even after the file was replaced.
func executable() (string, error) { return "/proc/self/exe", nil }
