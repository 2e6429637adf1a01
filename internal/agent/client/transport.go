package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// trackedTransport dials and secures the connections to an agent. It records why the last
// connection failed, because gRPC reports that only as text, which includes details that differ
// between attempts.
type trackedTransport struct {
	credentials.TransportCredentials

	dialer *net.Dialer

	mu      sync.Mutex
	lastErr error
}

func (l *trackedTransport) recordFailure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastErr = err
}

// lastFailure returns the error of the last connection; nil if it is unknown.
func (l *trackedTransport) lastFailure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastErr
}

// dial opens a connection to one of the addresses of a host.
func (l *trackedTransport) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := l.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		l.recordFailure(err)
	}
	return c, err
}

// ClientHandshake implements credentials.TransportCredentials.
func (l *trackedTransport) ClientHandshake(ctx context.Context, authority string,
	raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := l.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if l.recordFailure(err); err != nil {
		return nil, nil, err
	}
	return &trackedConn{Conn: c, transport: l, secure: info.AuthType() == "tls"}, info, nil
}

// Clone implements credentials.TransportCredentials. It returns the receiver, so that failures of
// every connection are recorded in one place.
func (l *trackedTransport) Clone() credentials.TransportCredentials { return l }

// trackedConn is a connection that records its last error in the transport.
type trackedConn struct {
	net.Conn

	transport *trackedTransport
	secure    bool
	// received is true once anything was read.
	received atomic.Bool
}

// earlyCloseError reports a connection that ended before anything was read. With TLS 1.3 a server
// rejects the client certificate only after the handshake, and its alert may or may not arrive
// before the connection closes.
type earlyCloseError struct{ secure bool }

// Error implements error.
func (e *earlyCloseError) Error() string {
	if e.secure {
		return tlsRejected
	}
	return "it closes the connection before it sends anything: check whether it requires TLS"
}

// Read implements net.Conn.
func (w *trackedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.received.Store(true)
	}
	return n, w.recordEnd(err)
}

// Write implements net.Conn.
func (w *trackedConn) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	return n, w.recordEnd(err)
}

// recordEnd records err and returns it, unless this process closed the connection itself.
func (w *trackedConn) recordEnd(err error) error {
	switch {
	case err == nil || errors.Is(err, net.ErrClosed):
	case !w.received.Load():
		w.transport.recordFailure(&earlyCloseError{w.secure})
	default:
		w.transport.recordFailure(err)
	}
	return err
}
