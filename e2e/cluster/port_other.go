//go:build !linux

package cluster

import (
	"fmt"
	"net"
)

// port is a TCP port on loopback that was free when reservePort checked it.
type port struct{ number int }

func reservePort() (*port, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return &port{number: listener.Addr().(*net.TCPAddr).Port}, nil
}

func (p *port) release() {}
