// Package gitserver serves real Git repositories over smart HTTP on loopback,
// with the git program of the machine and without its user's settings.
package gitserver

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// closeGrace is how long requests may still take when a server is closed.
const closeGrace = time.Minute

// Server serves the bare repositories in one folder. Its methods may be called
// from several goroutines at once.
type Server struct {
	dir      string
	git      string // path of the program
	url      string
	login    *login
	token    string
	http     *http.Server
	served   chan error
	requests atomic.Int64
}

type login struct{ user, password string }

// Option changes how a server behaves.
type Option func(*Server)

// WithLogin lets the server ask for a user and a password (basic auth), for
// reading as for writing.
func WithLogin(user, password string) Option {
	return func(s *Server) { s.login = &login{user: user, password: password} }
}

// WithToken lets the server ask for a bearer token instead.
func WithToken(token string) Option { return func(s *Server) { s.token = token } }

// New starts a server on a free port for the repositories in a folder, which
// must exist. It runs until [Server.Close]. It is an error if there is no git
// on PATH, or one without http-backend.
func New(dir string, options ...Option) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("serve Git repositories: %w", err)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("serve Git repositories: %w", err)
	}
	s := &Server{dir: dir, git: git, served: make(chan error, 1)}
	for _, o := range options {
		o(s)
	}
	if err := s.checkBackend(); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve Git repositories: %w", err)
	}
	s.url = "http://" + listener.Addr().String()
	s.http = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

// checkBackend finds out now, and not at the first fetch, if git can't serve.
func (s *Server) checkBackend() error {
	path, err := exec.Command(s.git, "--exec-path").Output()
	if err != nil {
		return fmt.Errorf("ask git for its programs: %w", err)
	}
	if _, err := os.Stat(filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")); err != nil {
		return fmt.Errorf("serve Git repositories: this git can't serve HTTP: %w", err)
	}
	return nil
}

// Close stops the server when requests have ended, or after a minute.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop serving Git repositories: %w", err)
	}
	return nil
}

// URL returns the server's address, without a slash at the end.
func (s *Server) URL() string { return s.url }

// Requests returns how many HTTP requests have come in: a poll of an unchanged
// branch is one or two, a clone two or three.
func (s *Server) Requests() int64 { return s.requests.Load() }

// Handler runs git http-backend for each request: what the server serves, for a
// test that serves it in another way as well, such as with TLS.
func (s *Server) Handler() http.Handler {
	backend := &cgi.Handler{
		Path: s.git,
		Args: []string{"http-backend"},
		Dir:  s.dir,
		Env: append(s.environ(),
			"GIT_PROJECT_ROOT="+s.dir,
			"GIT_HTTP_EXPORT_ALL=1",
		),
		// Git complains about clients that hang up, which tests do on purpose.
		Stderr: io.Discard,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if !s.authorized(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "user and password, please", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	})
}

func (s *Server) authorized(r *http.Request) bool {
	if s.token != "" {
		return subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.token)) == 1
	}
	if s.login == nil {
		return true
	}
	user, password, ok := r.BasicAuth()
	return ok && subtle.ConstantTimeCompare([]byte(user), []byte(s.login.user)) == 1 &&
		subtle.ConstantTimeCompare([]byte(password), []byte(s.login.password)) == 1
}

// environ is the environment of every git that the server runs: no settings of
// the user or the machine, and nobody to ask for a password.
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

// run runs git in a folder and returns what it prints, without the last line
// end. What it says on standard error is in the error.
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

// Git runs the machine's git with the server's isolated settings in a folder,
// such as a clone that a test made, and returns what it prints.
func (s *Server) Git(ctx context.Context, dir string, args ...string) (string, error) {
	return s.run(ctx, dir, nil, args...)
}
