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

// confine bounds what this process can do, for good. It returns what could not be
// given up, for people.
func confine(s settings) string {
	var open []string
	note := func(what string, err error) {
		if err != nil {
			open = append(open, fmt.Sprintf("%s: %v", what, err))
		}
	}
	// Should the machine run out of memory, it is this process that has to go. What
	// can't be written, as on a read-only /proc, is no bound that is missed.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	note("core dumps", limit(unix.RLIMIT_CORE, 0))
	note("files", limit(unix.RLIMIT_FSIZE, 0))
	// The race detector maps more than any bound before main begins.
	if !raced {
		have, err := mapped()
		if err == nil {
			err = limit(unix.RLIMIT_DATA, uint64(have+s.MemoryBytes))
		}
		note("memory", err)
	}
	note("network", denySyscalls())
	return strings.Join(open, "; ")
}

// mapped is how much memory this process could write to, in bytes: what it
// has without having rendered anything.
func mapped() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmData: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10, nil
		}
	}
	return 0, errors.New("/proc/self/status has no VmData")
}

func limit(resource int, n uint64) error {
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n})
}

// denied are the system calls that a render has no use for: those that reach the
// network, and those that run programs or look into other processes. A worker has
// no socket from the start, so that it suffices that it can't make one.
var denied = []uint32{
	unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_IO_URING_SETUP,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
}

// architectures are as the kernel numbers them. System calls have other numbers on
// others, and on one that is not here nothing is denied.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// otherABI is the bit of the numbers of a second set of system calls, on amd64.
const otherABI = 0x40000000

// denySyscalls has the kernel refuse the denied system calls to every thread.
func denySyscalls() error {
	arch, known := architectures[runtime.GOARCH]
	if !known {
		return fmt.Errorf("no list of system calls for %s", runtime.GOARCH)
	}
	refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4}, // seccomp_data.arch
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		refuse,
		bpf.LoadAbsolute{Off: 0, Size: 4}, // seccomp_data.nr
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: otherABI, SkipTrue: 1},
		refuse,
	}
	for _, nr := range denied {
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
	return install(&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

func install(program *unix.SockFprog) error {
	// A thread may only take a filter that it can't get rid of by running a
	// program; the thread that says so has to be the one that takes it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(program)))
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return fmt.Errorf("thread %d can't follow", thread)
	}
	return nil
}
