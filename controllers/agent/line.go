package agent

import (
	"context"
	"errors"
	"net"
	"sync"

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
	return &watched{Conn: c, line: l}, info, nil
}

// Clone implements credentials.TransportCredentials. What fails is remembered here all the same.
func (l *line) Clone() credentials.TransportCredentials { return l }

// watched is a connection whose end is remembered: that our certificate is refused is only
// told after the handshake, with TLS 1.3.
type watched struct {
	net.Conn

	line *line
}

// Read implements net.Conn.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.line.failed(err)
	}
	return n, err
}
