package workerd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// steer has the kernel queue new connections of the port at its nth socket. If there are fewer
// sockets, the kernel chooses, and so takes the only one.
func (l *Listener) steer(n uint32) error {
	// A program that returns n.
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: n}}
	err := unix.SetsockoptSockFprog(int(l.file.Fd()), unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err != nil {
		return fmt.Errorf("choosing the socket for new connections: %w", os.NewSyscallError("setsockopt", err))
	}
	return nil
}
