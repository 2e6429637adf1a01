package renderworker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// sandbox permanently restricts what this process can do. It returns a description of the
// restrictions that could not be applied, for the log.
func sandbox(s settings) string {
	var unenforced []string
	record := func(restriction string, err error) {
		if err != nil {
			unenforced = append(unenforced, fmt.Sprintf("%s: %v", restriction, err))
		}
	}
	// If the machine runs out of memory, the kernel kills this process first. A failed write, as on
	// a read-only /proc, does not count as a missing restriction.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	record("core dumps", setRlimit(unix.RLIMIT_CORE, 0))
	record("files", setRlimit(unix.RLIMIT_FSIZE, 0))
	// The race detector maps more memory than any limit before main begins.
	if !raceEnabled {
		have, err := dataSegmentBytes()
		if err == nil {
			err = setRlimit(unix.RLIMIT_DATA, uint64(have+s.MemoryBytes))
		}
		record("memory", err)
	}
	record("network", denySyscalls())
	return strings.Join(unenforced, "; ")
}

// dataSegmentBytes returns the size of the writable memory of this process, which has not rendered
// anything yet, as RLIMIT_DATA counts it.
func dataSegmentBytes() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(string(status), "\nVmData:")
	var kilobytes int64
	if _, err := fmt.Sscan(value, &kilobytes); err != nil {
		return 0, errors.New("/proc/self/status has no VmData")
	}
	return kilobytes << 10, nil
}

func setRlimit(resource int, n uint64) error {
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n})
}

// deniedSyscalls are system calls that a render does not need: those that reach the network, run
// programs or inspect other processes. A worker inherits no socket, so it suffices to deny creating
// one.
var deniedSyscalls = []uint32{
	unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_IO_URING_SETUP,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
}

// auditArchitectures maps GOARCH to the kernel's number of the architecture. Numbers of system
// calls differ between architectures; on one that is missing here, no system call is denied.
var auditArchitectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// x32SyscallBit marks the system calls of the x32 ABI, a second set of numbers on amd64.
const x32SyscallBit = 0x40000000

// denySyscalls installs a seccomp filter that refuses deniedSyscalls in every thread.
func denySyscalls() error {
	arch, known := auditArchitectures[runtime.GOARCH]
	if !known {
		return fmt.Errorf("seccomp filter: architecture %s is not supported", runtime.GOARCH)
	}
	refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4}, // seccomp_data.arch
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		refuse,
		bpf.LoadAbsolute{Off: 0, Size: 4}, // seccomp_data.nr
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32SyscallBit, SkipTrue: 1},
		refuse,
	}
	for _, nr := range deniedSyscalls {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 1}, refuse)
	}
	program = append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return installFilter(&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

func installFilter(program *unix.SockFprog) error {
	// A thread may only install a filter if it set PR_SET_NO_NEW_PRIVS, so that running a program
	// cannot remove the filter. Both calls have to be made by the same thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(program)))
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return fmt.Errorf("seccomp filter: synchronizing thread %d failed", thread)
	}
	return nil
}
