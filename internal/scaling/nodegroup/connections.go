package nodegroup

import (
	"maps"
	"net"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
)

// boundedListener closes connections beyond maxConnections at once.
type boundedListener struct {
	net.Listener
	mu   sync.Mutex
	open map[*trackedConn]struct{}
}

// Accept waits for the next connection.
func (s *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		out := &trackedConn{Conn: conn, listener: s}
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

// closeIf closes the connections for which match returns true.
func (s *boundedListener) closeIf(match func(*trackedConn) bool) {
	s.mu.Lock()
	all := maps.Clone(s.open)
	s.mu.Unlock()
	for conn := range all {
		if match(conn) {
			_ = conn.Close()
		}
	}
}

// closeAll closes all connections.
func (s *boundedListener) closeAll() { s.closeIf(func(*trackedConn) bool { return true }) }

// trackedConn is a connection of a boundedListener.
type trackedConn struct {
	net.Conn
	listener *boundedListener
	// authenticated is true once the client has presented a valid certificate.
	authenticated atomic.Bool
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// observedCredentials counts failed handshakes and logs them, rate limited.
type observedCredentials struct {
	credentials.TransportCredentials
	metrics  Metrics
	log      logr.Logger
	failures *rate.Limiter
}

// ServerHandshake implements credentials.TransportCredentials.
func (w *observedCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	out, info, err := w.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		w.metrics.FailedHandshake()
		if w.failures.Allow() {
			w.log.Info("rejected a connection to the node group server", "from", conn.RemoteAddr().String(), "why",
				err.Error())
		}
		return nil, nil, err
	}
	if s, ok := conn.(*trackedConn); ok {
		s.authenticated.Store(true)
	}
	return out, info, nil
}
