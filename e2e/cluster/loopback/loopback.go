// Package loopback serves HTTP on a free port of 127.0.0.1.
package loopback

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is a running server.
type Server struct {
	// Address is host:port.
	Address string

	http *http.Server
	end  func() error // waits for the end of the server
}

// Serve starts a server.
func Serve(handler http.Handler) (*Server, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{Address: listener.Addr().String(),
		http: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	s.end = sync.OnceValue(func() error {
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return s, nil
}

// Close stops the server immediately and aborts requests. Further calls do nothing.
func (s *Server) Close() error { return errors.Join(s.http.Close(), s.end()) }

// Shutdown waits for running requests until ctx ends, and then stops the server.
func (s *Server) Shutdown(ctx context.Context) error {
	return errors.Join(s.http.Shutdown(ctx), s.Close())
}
