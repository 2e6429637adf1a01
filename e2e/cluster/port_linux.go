package cluster

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// port is a TCP port on loopback, reserved for one child process. Its socket is bound and never
// listens. The child binds the same port (SO_REUSEPORT) and gets all connections. The kernel
// assigns the port to no other process, and it stays reserved across restarts of the child.
type port struct {
	number int
	socket int
}

func reservePort() (*port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	p := &port{socket: socket}
	if err := p.bind(); err != nil {
		p.release()
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	if err := unix.Bind(p.socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	address, err := unix.Getsockname(p.socket)
	if err != nil {
		return err
	}
	inet, ok := address.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("unexpected address %v", address)
	}
	p.number = inet.Port
	return nil
}

func (p *port) release() { _ = unix.Close(p.socket) }
