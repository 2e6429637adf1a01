package workerd

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listener is a listening socket that processes share. While no process accepts connections, they
// wait in the queue of the socket.
type Listener struct {
	file *os.File
	addr *net.TCPAddr
}

// Port is a TCP port on which one process replaces another without a lost connection: the new
// process has a socket of its own, and from the switch on all new connections are in the queue of
// that. So the old process has accepted its last connection before it stops.
type Port struct {
	host    string
	current *Listener
	// steers is false if the kernel cannot choose between sockets. Then processes share one.
	steers bool
}

// ListenPort opens a port.
func ListenPort(ctx context.Context, host string, port int) (*Port, error) {
	first, err := listen(ctx, host, port)
	if err != nil {
		return nil, err
	}
	return &Port{host: host, current: first, steers: first.steer(0) == nil}, nil
}

// Listen opens a listener on a free port of loopback.
func Listen(ctx context.Context) (*Listener, error) { return listen(ctx, "127.0.0.1", 0) }

// Current returns the socket with the new connections.
func (p *Port) Current() *Listener { return p.current }

// Next opens a socket for the next process, which has no connections before Switch. No more than
// two sockets may be open.
func (p *Port) Next(ctx context.Context) (*Listener, error) {
	if !p.steers {
		return p.current, nil
	}
	// The sockets of a port are numbered in the order in which they were opened.
	if err := p.current.steer(0); err != nil {
		return nil, fmt.Errorf("port %d: %w", p.current.addr.Port, err)
	}
	return listen(ctx, p.host, p.current.addr.Port)
}

// Switch has new connections go to a socket that Next returned, and closes the other one, which the
// old process has, too.
func (p *Port) Switch(next *Listener) error {
	if next == p.current {
		return nil
	}
	old := p.current
	p.current = next
	if err := next.steer(1); err != nil {
		return fmt.Errorf("port %d: %w", next.addr.Port, err)
	}
	return old.Close()
}

// Discard closes a socket that Next returned.
func (p *Port) Discard(next *Listener) error {
	if next == p.current {
		return nil
	}
	return next.Close()
}

// Close closes the port for this process.
func (p *Port) Close() error { return p.current.Close() }

func listen(ctx context.Context, host string, port int) (*Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		controlErr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		if err == nil {
			err = controlErr
		}
		return err
	}}
	// Linux has no filters for sockets of multipath TCP.
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, fmt.Sprint(port)))
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
		return nil, fmt.Errorf("duplicating the socket of %s: %w", l.Addr(), err)
	}
	return &Listener{file: os.NewFile(uintptr(fd), l.Addr().String()), addr: l.Addr().(*net.TCPAddr)}, nil
}

// Addr returns the address of the listener.
func (l *Listener) Addr() net.Addr { return l.addr }

// Duplicate returns a file of the same socket. The caller closes it.
func (l *Listener) Duplicate() (*os.File, error) {
	fd, err := unix.FcntlInt(l.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), l.file.Name()), nil
}

// Close closes the listener for this process.
func (l *Listener) Close() error { return l.file.Close() }
