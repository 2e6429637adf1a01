package runtime

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// serveHealth serves /healthz and /readyz. The returned function stops it.
func (s *supervisor) serveHealth(ctx context.Context) (stop func(), err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.HealthAddr)
	if err != nil {
		return nil, fmt.Errorf("listening for health checks: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case !s.serving.Load():
			http.Error(w, "workerd does not serve all workers", http.StatusServiceUnavailable)
		case s.unresponsive.Load():
			http.Error(w, "workerd does not respond", http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed
	}()
	return func() {
		_ = server.Close()
		<-served
	}, nil
}
