package artifacts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/e2e/cluster/loopback"
)

// Server serves archives on loopback. It is safe for concurrent use.
type Server struct {
	http *loopback.Server

	requests atomic.Int64

	mu           sync.Mutex
	failuresLeft int               // number of requests that will still fail
	archives     map[string][]byte // by path, without the leading slash
}

// New starts a server on a free port. It runs until [Server.Close].
func New() (*Server, error) {
	s := &Server{archives: map[string][]byte{}}
	var err error
	if s.http, err = loopback.Serve(s); err != nil {
		return nil, fmt.Errorf("listening for artifacts: %w", err)
	}
	return s, nil
}

// Close stops the server immediately and aborts downloads.
func (s *Server) Close() error {
	if err := s.http.Close(); err != nil {
		return fmt.Errorf("stopping the artifact server: %w", err)
	}
	return nil
}

// URL returns the server's address, without a trailing slash.
func (s *Server) URL() string { return "http://" + s.http.Address }

// Publish packs a tree and serves it under a name such as "gitrepository/flux-system/stacks". The
// revision is the one that a source would report, such as "main@sha1:…". Earlier artifacts of the
// name stay available.
func (s *Server) Publish(name string, tree fs.FS, revision string) (meta.Artifact, error) {
	archive, err := Archive(tree)
	if err != nil {
		return meta.Artifact{}, fmt.Errorf("publishing %s: %w", name, err)
	}
	return s.PublishArchive(name, archive, revision), nil
}

// PublishArchive serves bytes as they are, so that a test can publish a malformed or malicious
// archive.
func (s *Server) PublishArchive(name string, archive []byte, revision string) meta.Artifact {
	sum := sha256.Sum256(archive)
	digest := hex.EncodeToString(sum[:])
	path := name + "/" + digest + ".tar.gz"
	s.Replace(path, archive)
	size := int64(len(archive))
	return meta.Artifact{
		Path:           path,
		URL:            s.URL() + "/" + path,
		Revision:       revision,
		Digest:         "sha256:" + digest,
		LastUpdateTime: metav1.Now(),
		Size:           &size,
	}
}

// Replace changes the response for an artifact's path: to bytes that do not match its digest, or,
// with nil, to status 404, as after garbage collection by a source.
func (s *Server) Replace(path string, archive []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if archive == nil {
		delete(s.archives, path)
		return
	}
	s.archives[path] = archive
}

// FailNext answers the next n downloads with status 503.
func (s *Server) FailNext(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failuresLeft = n
}

// Requests returns the number of requests received.
func (s *Server) Requests() int64 { return s.requests.Load() }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	archive, status := s.lookup(strings.TrimPrefix(r.URL.Path, "/"))
	if status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	// The client may have disconnected, which is not an error of the server.
	_, _ = w.Write(archive)
}

func (s *Server) lookup(path string) (archive []byte, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failuresLeft > 0 {
		s.failuresLeft--
		return nil, http.StatusServiceUnavailable
	}
	archive, ok := s.archives[path]
	if !ok {
		return nil, http.StatusNotFound
	}
	return archive, http.StatusOK
}
