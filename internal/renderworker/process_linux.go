package renderworker

import (
	"fmt"
	"math"
	"os"
	"os/exec"
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
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)) // empty if the process exited
	var size, resident int64
	_, _ = fmt.Sscan(string(data), &size, &resident)
	return resident * int64(os.Getpagesize())
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
