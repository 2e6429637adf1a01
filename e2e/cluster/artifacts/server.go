package artifacts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Server serves archives on loopback. Its methods may be called from several
// goroutines at once.
type Server struct {
	url    string
	http   *http.Server
	served chan error

	requests atomic.Int64

	mu       sync.Mutex
	failing  int               // how many requests are still to fail
	archives map[string][]byte // by path, without the leading slash
}

// New starts a server on a free port. It runs until [Server.Close].
func New() (*Server, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for artifacts: %w", err)
	}
	s := &Server{
		url:      "http://" + listener.Addr().String(),
		served:   make(chan error, 1),
		archives: map[string][]byte{},
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

// Close stops the server at once, and breaks downloads off.
func (s *Server) Close() error {
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop serving artifacts: %w", err)
	}
	return nil
}

// URL returns the server's address, without a slash at the end.
func (s *Server) URL() string { return s.url }

// Publish packs a tree and serves it under a name of its own, such as
// "gitrepository/flux-system/stacks". The revision is what a source would
// report, such as "main@sha1:…". Earlier artifacts of the name stay.
func (s *Server) Publish(name string, tree fs.FS, revision string) (meta.Artifact, error) {
	archive, err := Archive(tree)
	if err != nil {
		return meta.Artifact{}, fmt.Errorf("publish %s: %w", name, err)
	}
	return s.PublishArchive(name, archive, revision), nil
}

// PublishArchive serves bytes as they are, so that a test can publish an
// archive that no honest source would make.
func (s *Server) PublishArchive(name string, archive []byte, revision string) meta.Artifact {
	sum := sha256.Sum256(archive)
	digest := hex.EncodeToString(sum[:])
	path := name + "/" + digest + ".tar.gz"
	s.Replace(path, archive)
	size := int64(len(archive))
	return meta.Artifact{
		Path:           path,
		URL:            s.url + "/" + path,
		Revision:       revision,
		Digest:         "sha256:" + digest,
		LastUpdateTime: metav1.Now(),
		Size:           &size,
	}
}

// Replace changes what an artifact's path answers: other bytes than its digest
// promises, or with nil none (404), as when a source has cleaned up.
func (s *Server) Replace(path string, archive []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if archive == nil {
		delete(s.archives, path)
		return
	}
	s.archives[path] = archive
}

// FailNext lets the next n downloads be answered with status 503.
func (s *Server) FailNext(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = n
}

// Requests returns how many requests have come in.
func (s *Server) Requests() int64 { return s.requests.Load() }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	archive, status := s.answer(strings.TrimPrefix(r.URL.Path, "/"))
	if status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	// A client that went away is no concern of the server's.
	_, _ = w.Write(archive)
}

func (s *Server) answer(path string) (archive []byte, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing > 0 {
		s.failing--
		return nil, http.StatusServiceUnavailable
	}
	archive, ok := s.archives[path]
	if !ok {
		return nil, http.StatusNotFound
	}
	return archive, http.StatusOK
}
