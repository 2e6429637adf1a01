package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/ksctl/gitops/internal/version"
	"github.com/ksctl/gitops/internal/workers/filestore"
	"github.com/ksctl/gitops/internal/workers/scriptsapi"
)

const (
	// concurrentFiles bounds the memory of files that are fetched.
	concurrentFiles = 8
	// shutdownTimeout is how long requests can take after a signal.
	shutdownTimeout = 20 * time.Second
	// maxCollectInterval is the longest time between two collections of unused files.
	maxCollectInterval = time.Hour
)

// servers are the API, the files, and the collection of unused files.
type servers struct {
	options *options
	api     *scriptsapi.Server
	log     logr.Logger
	keep    time.Duration

	stopping atomic.Bool
}

// run serves until ctx ends, and then waits for the requests.
func (s *servers) run(ctx context.Context) error {
	apiListener, err := listen(ctx, "addr", s.options.addr)
	if err != nil {
		return err
	}
	filesListener, err := listen(ctx, "files-addr", s.options.filesAddr)
	if err != nil {
		return errors.Join(err, apiListener.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	if s.options.certFile != "" {
		watcher, err := certwatcher.New(s.options.certFile, s.options.keyFile)
		if err != nil {
			return errors.Join(fmt.Errorf("reading the certificate: %w", err), apiListener.Close(),
				filesListener.Close())
		}
		group.Go(func() error { return watcher.Start(ctx) })
		apiListener = tls.NewListener(apiListener, &tls.Config{MinVersion: tls.VersionTLS12,
			GetCertificate: watcher.GetCertificate, NextProtos: []string{"http/1.1"}})
	}
	s.log.Info("serving", "version", version.String(), "address", apiListener.Addr().String(), "tls",
		s.options.certFile != "", "files", filesListener.Addr().String(), "namespace", s.options.api.Namespace)
	files := http.NewServeMux()
	files.Handle("/files/", filestore.Handler(s.options.api.Files, concurrentFiles, s.log))
	files.HandleFunc("/readyz", s.ready)
	s.serve(ctx, group, apiListener, s.api)
	s.serve(ctx, group, filesListener, files)
	group.Go(func() error { return s.collect(ctx) })
	err = group.Wait()
	s.log.Info("stopped")
	return err
}

func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return l, nil
}

// ready answers probes of both servers: they run in one process.
func (s *servers) ready(w http.ResponseWriter, _ *http.Request) {
	if s.stopping.Load() {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

// serve serves a handler until ctx ends.
func (s *servers) serve(ctx context.Context, group *errgroup.Group, l net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute,
		WriteTimeout: 6 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	group.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving %s: %w", l.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		s.stopping.Store(true)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			return errors.Join(fmt.Errorf("waiting for requests: %w", err), server.Close())
		}
		return nil
	})
}

// collect deletes unused files regularly.
func (s *servers) collect(ctx context.Context) error {
	ticker := time.NewTicker(max(min(s.keep/4, maxCollectInterval), time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		deleted, err := s.api.Collect(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Error(err, "deleting unused files failed", "deleted", deleted)
		} else if deleted > 0 {
			s.log.Info("deleted unused files", "deleted", deleted)
		}
	}
}
