// Package gitserver serves real Git repositories over smart HTTP and SSH on loopback. It runs the
// installed git program without the user's configuration.
package gitserver

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ksctl/gitops/e2e/cluster/loopback"
)

// closeGrace bounds the wait for running requests in Close.
const closeGrace = time.Minute

// Server serves the bare repositories in one folder. It is safe for concurrent use.
type Server struct {
	dir           string
	git           string // path of the program
	authorization string // required value of the header Authorization; "" allows everybody
	http          *loopback.Server
	requests      atomic.Int64
}

// Option configures a server.
type Option func(*Server)

// WithBasicAuth requires a user and a password for reads and writes.
func WithBasicAuth(user, password string) Option {
	return func(s *Server) {
		s.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
}

// WithBearerToken requires a bearer token for reads and writes.
func WithBearerToken(token string) Option {
	return func(s *Server) { s.authorization = "Bearer " + token }
}

// New starts a server on a free port for the repositories in a folder, which must exist. It runs
// until [Server.Close]. New returns an error if PATH has no git, or git lacks http-backend.
func New(dir string, options ...Option) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("serving Git repositories: %w", err)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("serving Git repositories: %w", err)
	}
	s := &Server{dir: dir, git: git}
	for _, o := range options {
		o(s)
	}
	if err := s.checkBackend(); err != nil {
		return nil, err
	}
	if s.http, err = loopback.Serve(s.Handler()); err != nil {
		return nil, fmt.Errorf("serving Git repositories: %w", err)
	}
	return s, nil
}

// checkBackend returns an error if git can't serve HTTP, so that New fails and not the first fetch.
func (s *Server) checkBackend() error {
	path, err := exec.Command(s.git, "--exec-path").Output()
	if err != nil {
		return fmt.Errorf("running git --exec-path: %w", err)
	}
	if _, err := os.Stat(filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")); err != nil {
		return fmt.Errorf("serving Git repositories: the installed git lacks http-backend: %w", err)
	}
	return nil
}

// Close waits up to a minute for running requests, then stops the server.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return fmt.Errorf("stopping the Git server: %w", err)
	}
	return nil
}

// URL returns the server's address, without a trailing slash.
func (s *Server) URL() string { return "http://" + s.http.Address }

// Requests returns the number of HTTP requests received. A poll of an unchanged branch takes one or
// two requests, a clone two or three.
func (s *Server) Requests() int64 { return s.requests.Load() }

// Handler returns the server's handler, which runs git http-backend for each request. Tests use it
// to serve the same repositories differently, such as with TLS.
func (s *Server) Handler() http.Handler {
	backend := &cgi.Handler{
		Path: s.git,
		Args: []string{"http-backend"},
		Dir:  s.dir,
		Env: append(s.environ(),
			"GIT_PROJECT_ROOT="+s.dir,
			"GIT_HTTP_EXPORT_ALL=1",
		),
		// Git logs clients that disconnect, which tests do on purpose.
		Stderr: io.Discard,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if s.authorization != "" &&
			subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(s.authorization)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "authentication required", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	})
}

// environ returns the environment of every git process of the server: without user and system
// configuration, and without password prompts.
func (s *Server) environ() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + s.dir,
		"XDG_CONFIG_HOME=" + s.dir,
		"GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_CONFIG_SYSTEM=" + os.DevNull,
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"LC_ALL=C",
	}
}

// run runs git in a folder and returns its standard output without the final newline. An error
// contains its standard error.
func (s *Server) run(ctx context.Context, dir string, input io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.git, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, s.environ(), input
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

// Git runs git with the server's isolated configuration in a folder, such as a clone that a test
// made, and returns its standard output.
func (s *Server) Git(ctx context.Context, dir string, args ...string) (string, error) {
	return s.run(ctx, dir, nil, args...)
}
