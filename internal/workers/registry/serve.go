package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// retryCollection is the delay after a collection that failed.
const retryCollection = 5 * time.Minute

// shutdownTimeout bounds the wait for requests when the server stops.
const shutdownTimeout = 20 * time.Second

// ServeOptions are the options of Serve.
type ServeOptions struct {
	// CertFile and KeyFile are those of TLS, and are read again when they change; plain HTTP if
	// they are "".
	CertFile, KeyFile string
	// CollectInterval is the time between collections; 0 is never.
	CollectInterval time.Duration
	// Collect requests a collection.
	Collect <-chan struct{}
}

// Serve serves the registry until ctx ends.
func (r *Registry) Serve(ctx context.Context, listener net.Listener, o ServeOptions) error {
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	collectCtx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	served := make(chan error, 1)
	if o.CertFile != "" {
		certificate, err := certwatcher.New(o.CertFile, o.KeyFile)
		if err != nil {
			return errors.Join(fmt.Errorf("reading the certificate of the registry: %w", err), listener.Close())
		}
		tasks.Go(func() {
			if err := certificate.Start(collectCtx); err != nil {
				r.Log.Error("changes of the certificate are not noticed", "error", err.Error())
			}
		})
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate}
		go func() { served <- server.ServeTLS(listener, "", "") }()
	} else {
		go func() { served <- server.Serve(listener) }()
	}
	tasks.Go(func() { r.collectRegularly(collectCtx, o) })
	select {
	case err := <-served:
		return fmt.Errorf("serving the registry: %w", err)
	case <-ctx.Done():
	}
	stop, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancelStop()
	err := server.Shutdown(stop)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests did not end: %w", err), server.Close())
	}
	<-served
	return err
}

// collectRegularly collects garbage at an interval and on request.
func (r *Registry) collectRegularly(ctx context.Context, o ServeOptions) {
	timer := time.NewTimer(o.CollectInterval)
	defer timer.Stop()
	if o.CollectInterval <= 0 {
		timer.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-o.Collect:
		}
		next := o.CollectInterval
		if err := r.Collect(ctx); err != nil && ctx.Err() == nil {
			next = retryCollection
			r.Log.Error("garbage was not collected", "error", err.Error(), "next", next.String())
		}
		if next > 0 {
			timer.Reset(next)
		}
	}
}
