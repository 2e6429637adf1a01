package restapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/ksctl/gitops/internal/restapi/repository"
)

// testServer is a running Server.
type testServer struct {
	*Server
	certFile, keyFile string
	stop              context.CancelFunc
	done              chan error
}

// writeCertificate writes a new certificate for 127.0.0.1, and returns it.
func writeCertificate(t *testing.T, certFile, keyFile string) []byte {
	t.Helper()
	content, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{certFile: content, keyFile: key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return content
}

// startServer starts a Server, and returns its certificate, too.
func startServer(t *testing.T, o Options) (*testServer, []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Addr = l.Addr().String()
	_ = l.Close()
	dir := t.TempDir()
	o.CertFile, o.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	content := writeCertificate(t, o.CertFile, o.KeyFile)
	if o.Config == nil {
		o.Config = &rest.Config{Host: "https://127.0.0.1:1"}
	}
	o.Clock = realClock
	s := &testServer{certFile: o.CertFile, keyFile: o.KeyFile, done: make(chan error, 1)}
	if s.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	if s.ready(nil) == nil || s.NeedLeaderElection() {
		t.Error("the server is ready before it listens, or needs leader election")
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(t.Context())
	t.Cleanup(s.stop)
	go func() { s.done <- s.Start(ctx) }()
	for s.ready(nil) != nil {
		select {
		case err := <-s.done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	return s, content
}

// get requests the OpenAPI document without a token, and returns the body.
func (s *testServer) get(scheme string, certificate []byte) (string, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	resp, err := client.Get(scheme + s.Addr + "/openapi/v3")
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	return string(content), err
}

func TestServerServesTLSOnlyAndStops(t *testing.T) {
	s, certificate := startServer(t, Options{})
	for scheme, want := range map[string]string{"https://": "the request has no bearer token",
		"http://": "HTTP request to an HTTPS server"} {
		if content, err := s.get(scheme, certificate); err != nil || !strings.Contains(content, want) {
			t.Errorf("%s: %s %v", scheme, content, err)
		}
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	for s.ready(nil) == nil {
		select {
		case <-t.Context().Done():
			t.Fatal("the server is ready after it has stopped")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestServerUsesRenewedCertificate(t *testing.T) {
	s, former := startServer(t, Options{})
	renewed := writeCertificate(t, s.certFile, s.keyFile)
	for {
		_, err := s.get("https://", renewed)
		if err == nil {
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if _, err := s.get("https://", former); err == nil {
		t.Error("the former certificate is still used")
	}
}

// slowRepository completes a change when the server is stopping.
type slowRepository struct {
	*fakeRepository
	stop   func()
	closed bool
}

func (r *slowRepository) Apply(ctx context.Context, c repository.Change) (repository.Result, error) {
	r.stop()
	if err := ctx.Err(); err != nil {
		return repository.Result{}, err
	}
	return r.fakeRepository.Apply(ctx, c)
}

func (r *slowRepository) Close() error {
	r.closed = true
	return nil
}

func TestChangeEndsBeforeServerStops(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	slow := &slowRepository{fakeRepository: newRepository()}
	s, certificate := startServer(t, Options{Repository: slow, Kinds: e.handler.resources.kinds,
		Mapper: e.handler.resources.mapper, Config: &rest.Config{Host: e.handler.server.base.String()}})
	slow.stop = func() {
		s.stop()
		<-s.handler.stopping.Done()
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://"+s.Addr+shops,
		strings.NewReader(shopJSON("hi")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", jsonType)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated || len(slow.commits) != 1 {
		t.Errorf("code %d, %d commits", resp.StatusCode, len(slow.commits))
	}
	if err := <-s.done; err != nil || !slow.closed {
		t.Errorf("%v, closed: %v", err, slow.closed)
	}
}

func TestServerNeedsCertificate(t *testing.T) {
	s, err := New(Options{Addr: "127.0.0.1:0", CertFile: "/nonexistent/tls.crt", KeyFile: "/nonexistent/tls.key",
		Config: &rest.Config{Host: "https://127.0.0.1:1"}, Clock: realClock})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate of the REST endpoint") {
		t.Error(err)
	}
}
