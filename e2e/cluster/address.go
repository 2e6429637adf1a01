package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// reservedPorts are the ports that FreePort has returned in this process. A caller that needs two
// ports listens on neither before it has both, so a free port may be reserved already.
var reservedPorts sync.Map

// FreePort returns a port on loopback (127.0.0.1) without a listener, for a program whose port is a
// flag. The port is below the ephemeral range (32768 and above on Linux), so that no outgoing
// connection occupies it before the program listens. No port is returned twice.
func FreePort() (int, error) {
	const first, ports, tries = 15000, 15000, 100
	var err error
	for range tries {
		port := first + rand.IntN(ports)
		if _, taken := reservedPorts.LoadOrStore(port, true); taken {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp4", loopback(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("finding a free port: %w", err)
}

// FreeAddress is FreePort for a program whose address (host:port) is a flag.
func FreeAddress() (string, error) {
	port, err := FreePort()
	return loopback(port), err
}

// loopback returns the address of a port on loopback.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
