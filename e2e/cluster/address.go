package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// reservedPorts are the ports that FreeAddress has returned in this process. A caller that needs
// two addresses listens on neither before it has both, so a free port may be reserved already.
var reservedPorts sync.Map

// FreeAddress returns a loopback address (host:port) without a listener, for a program whose listen
// address is a flag. The port is below the ephemeral range (32768 and above on Linux), so that no
// outgoing connection occupies it before the program listens. No address is returned twice.
func FreeAddress() (string, error) {
	const first, ports, tries = 15000, 15000, 100
	var err error
	for range tries {
		port := first + rand.IntN(ports)
		if _, taken := reservedPorts.LoadOrStore(port, true); taken {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", fmt.Errorf("finding a free port: %w", err)
}
