package storage

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/ksctl/gitops/internal/sources/httpserver"
	"github.com/ksctl/gitops/stacks/artifact"
)

// closeGrace is how long downloads in progress may still take during shutdown.
const closeGrace = 10 * time.Second

// Start implements manager.Runnable: it serves artifacts until ctx is done, and returns when the
// last request has ended.
func (s *Storage) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("serving artifacts: %w", err)
	}
	return s.serve(ctx, listener)
}

// NeedLeaderElection returns true: other replicas have no artifacts to serve.
func (s *Storage) NeedLeaderElection() bool { return true }

func (s *Storage) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 10 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	return httpserver.Serve(ctx, server, listener, closeGrace, "artifacts")
}

// Handler serves artifacts, and no other files in the folder.
func (s *Storage) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		name, sum, ok := parsePath(r.URL.Path)
		if !ok {
			http.NotFound(w, r)
			return
		}
		file, err := s.root.Open(name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer func() { _ = file.Close() }()
		w.Header().Set("Content-Type", "application/gzip")
		w.Header().Set("ETag", `"`+sum+`"`)
		http.ServeContent(w, r, "", time.Time{}, file)
	})
}

// parsePath returns the path in the folder for the path of a URL, and the digest in it.
func parsePath(url string) (name, sum string, ok bool) {
	name = strings.TrimPrefix(url, "/")
	elements := strings.Split(name, "/")
	if len(elements) != 4 || path.Clean(name) != name {
		return "", "", false
	}
	sum, ok = strings.CutSuffix(elements[3], extension)
	if !ok {
		return "", "", false
	}
	_, err := artifact.ParseDigest("sha256:" + sum)
	return name, sum, err == nil
}
