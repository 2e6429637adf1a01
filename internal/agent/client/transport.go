package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/ksctl/gitops/stacks/artifact"
)

// line is what connections to an agent are made of. It remembers why the last one failed:
// gRPC tells that as text, which quotes what differs each time.
type line struct {
	credentials.TransportCredentials

	dialer *net.Dialer

	mu  sync.Mutex
	err error
}

func newLine(transport credentials.TransportCredentials) *line {
	return &line{TransportCredentials: transport, dialer: artifact.NewDialer()}
}

func (l *line) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// failure is why there is no connection; nil: that is not known.
func (l *line) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// dial opens a connection to one of the addresses of a name.
func (l *line) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := l.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		l.failed(err)
	}
	return c, err
}

// ClientHandshake implements credentials.TransportCredentials.
func (l *line) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := l.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if l.failed(err); err != nil {
		return nil, nil, err
	}
	return &watched{Conn: c, line: l, secure: info.AuthType() == "tls"}, info, nil
}

// Clone implements credentials.TransportCredentials. What fails is remembered here all the same.
func (l *line) Clone() credentials.TransportCredentials { return l }

// watched is a connection whose end is remembered.
type watched struct {
	net.Conn

	line   *line
	secure bool
	// spoke is true when anything was read.
	spoke atomic.Bool
}

// silentError is a connection that ended before anything was said. With TLS 1.3 our certificate
// is refused after the handshake, and whether the refusal itself arrives is a matter of chance.
type silentError struct{ secure bool }

// Error implements error.
func (e *silentError) Error() string {
	if e.secure {
		return refusesTLS
	}
	return "it closes the connection without a word: see whether it wants TLS"
}

// Read implements net.Conn.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.spoke.Store(true)
	}
	return n, w.ended(err)
}

// Write implements net.Conn.
func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	return n, w.ended(err)
}

// ended remembers an error that is not of our own making.
func (w *watched) ended(err error) error {
	switch {
	case err == nil || errors.Is(err, net.ErrClosed):
	case !w.spoke.Load():
		w.line.failed(&silentError{w.secure})
	default:
		w.line.failed(err)
	}
	return err
}
