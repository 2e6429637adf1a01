// Package httpserver runs the HTTP servers of the controller.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Serve serves until ctx is done, and returns when the last request has ended. After grace it
// closes the connections of requests that are still in progress. Errors say what is served.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, grace time.Duration, what string) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving %s: %w", what, err)
	case <-ctx.Done():
	}
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := server.Shutdown(shutdownCtx)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	if err != nil {
		return fmt.Errorf("serving %s: %w", what, err)
	}
	return nil
}
