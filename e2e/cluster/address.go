package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// given are the ports that this process was told of: who was told of two begins to
// listen at neither before it has both.
var given sync.Map

// FreeAddress is one on loopback that nobody listens at, for a program that is
// told where to listen. Its port is below those that a system hands out by itself
// (from 32768 on Linux): no connection takes it before the program does. No address
// is given twice.
func FreeAddress() (string, error) {
	const first, ports, tries = 15000, 15000, 100
	var err error
	for range tries {
		port := first + rand.IntN(ports)
		if _, twice := given.LoadOrStore(port, true); twice {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}
