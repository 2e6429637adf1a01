package workerd

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Listener is a listening socket that processes share. While no process accepts connections, they
// wait in the queue of the socket.
type Listener struct {
	file *os.File
	addr net.Addr
}

// Listen opens a listener, such as for ":8080".
func Listen(ctx context.Context, address string) (*Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	duplicate, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	defer func() { _ = duplicate.Close() }()
	// Fd makes the socket blocking for all processes that share it. An os.File of a blocking
	// descriptor does not, so that starting a process does not block others that accept.
	fd, err := unix.FcntlInt(duplicate.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicating the socket of %s: %w", address, err)
	}
	return &Listener{file: os.NewFile(uintptr(fd), address), addr: l.Addr()}, nil
}

// Addr returns the address of the listener.
func (l *Listener) Addr() net.Addr { return l.addr }

// Close closes the listener for this process.
func (l *Listener) Close() error { return l.file.Close() }
