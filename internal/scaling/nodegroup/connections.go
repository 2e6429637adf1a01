package nodegroup

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
)

// sockets are the connections of a listener. Beyond maxConnections none is let in.
type sockets struct {
	net.Listener
	mu   sync.Mutex
	open map[*socket]struct{}
}

// Accept waits for the next connection.
func (s *sockets) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		out := &socket{Conn: conn, of: s}
		s.mu.Lock()
		room := len(s.open) < maxConnections
		if room {
			s.open[out] = struct{}{}
		}
		s.mu.Unlock()
		if room {
			return out, nil
		}
		_ = conn.Close()
	}
}

// closeStrangers ends connections of those that have not said who they are: nothing is lost.
func (s *sockets) closeStrangers() { s.closeIf(func(c *socket) bool { return !c.known.Load() }) }

// closeAll ends all connections.
func (s *sockets) closeAll() { s.closeIf(func(*socket) bool { return true }) }

func (s *sockets) closeIf(chosen func(*socket) bool) {
	s.mu.Lock()
	var all []*socket
	for conn := range s.open {
		if chosen(conn) {
			all = append(all, conn)
		}
	}
	s.mu.Unlock()
	for _, conn := range all {
		_ = conn.Close()
	}
}

type socket struct {
	net.Conn
	of *sockets
	// known is true once the client has shown a certificate.
	known atomic.Bool
}

// Close implements net.Conn.
func (c *socket) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// watched has it counted, and now and then logged, when somebody is not let in.
type watched struct {
	credentials.TransportCredentials
	metrics  Metrics
	log      logr.Logger
	failures *rate.Limiter
}

// ServerHandshake implements credentials.TransportCredentials.
func (w *watched) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	out, info, err := w.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		w.metrics.FailedHandshake()
		if w.failures.Allow() {
			w.log.Info("a client was not let in", "from", conn.RemoteAddr().String(), "why", err.Error())
		}
		return nil, nil, err
	}
	if s, ok := conn.(*socket); ok {
		s.known.Store(true)
	}
	return out, info, nil
}

// Clone implements credentials.TransportCredentials.
func (w *watched) Clone() credentials.TransportCredentials {
	return &watched{TransportCredentials: w.TransportCredentials.Clone(), metrics: w.metrics, log: w.log, failures: w.failures}
}
