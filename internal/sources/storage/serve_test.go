package storage

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks/artifact"
)

var fleet = types.NamespacedName{Namespace: "team", Name: "fleet"}

func newStorage(t *testing.T) (*Space, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(Options{Path: dir, AdvertisedAddr: "storage"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.Space("kind"), dir
}

func TestHandlerServesOnlyArtifacts(t *testing.T) {
	s, dir := newStorage(t)
	name, packed, err := s.Store(t.Context(), fleet, fstest.MapFS{"a": {Data: []byte("a")}}, artifact.PackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sum := strings.TrimPrefix(packed.Digest, "sha256:")
	for _, path := range []string{tempPrefix + "1", "kind/team/fleet/notes.txt", "secret.tar.gz"} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd",
		filepath.Join(dir, "kind/team/fleet", strings.Repeat("0", 64)+extension)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/" + name, 200},
		{"HEAD", "/" + name, 200},
		{"POST", "/" + name, 405},
		{"DELETE", "/" + name, 405},
		{"GET", "/", 404},
		{"GET", "/kind", 404},
		{"GET", "/kind/team/fleet/", 404},
		{"GET", "/kind/team/fleet", 404},
		{"GET", "/" + tempPrefix + "1", 404},
		{"GET", "/secret.tar.gz", 404},
		{"GET", "/kind/team/fleet/notes.txt", 404},
		{"GET", "/kind/team/other/" + sum + extension, 404},
		{"GET", "/kind/team/../team/fleet/" + sum + extension, 404},
		{"GET", "/kind/../team/" + sum + extension, 404},
		{"GET", "/kind/team/fleet/" + strings.Repeat("0", 64) + extension, 404},
		{"GET", "/kind/team/fleet/" + strings.Repeat("1", 64) + extension, 404},
	} {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(c.method, "/", nil)
		req.URL.Path = c.path
		s.Handler().ServeHTTP(w, req)
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.want)
		}
		if c.want == 404 && strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s %s: %q", c.method, c.path, w.Body)
		}
		if c.method == "GET" && c.want == 200 && int64(w.Body.Len()) != packed.Size {
			t.Errorf("%s: %d bytes, want %d", c.path, w.Body.Len(), packed.Size)
		}
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	s, _ := newStorage(t)
	name, packed, err := s.Store(t.Context(), fleet, fstest.MapFS{"a": {Data: []byte("a")}}, artifact.PackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, listener) }()
	resp, err := http.Get("http://" + listener.Addr().String() + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if cerr := errors.Join(err, resp.Body.Close()); cerr != nil || n != packed.Size {
		t.Errorf("%d bytes, want %d: %v", n, packed.Size, cerr)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(closeGrace + time.Minute):
		t.Fatal("still serving")
	}
	// Another process may use the port by now, so the test checks the listener itself.
	if err := listener.(*net.TCPListener).SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("still listening: %v", err)
	}
}

func TestStartFailsWhenTheAddressIsInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	s, err := Open(Options{Path: t.TempDir(), Addr: listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if got, want := s.URL("x"), "http://"+listener.Addr().String()+"/x"; got != want {
		t.Errorf("URL %s, want %s", got, want)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("no error for an address in use")
	}
}

func TestAdvertisedAddress(t *testing.T) {
	host := func() (string, error) { return "pod-1", nil }
	for _, c := range []struct{ addr, adv, want string }{
		{":9090", "", "pod-1:9090"},
		{"0.0.0.0:9090", "", "pod-1:9090"},
		{"[::]:9090", "", "pod-1:9090"},
		{"10.0.0.7:9090", "", "10.0.0.7:9090"},
		{":9090", "gitops.ksctl.svc", "gitops.ksctl.svc"},
		{":9090", "10.0.0.7:80", "10.0.0.7:80"},
	} {
		if got, err := advertised(c.addr, c.adv, host); err != nil || got != c.want {
			t.Errorf("%q %q: %q %v, want %q", c.addr, c.adv, got, err, c.want)
		}
	}
	if _, err := advertised("nonsense", "", host); err == nil {
		t.Error("no error for an address without a port")
	}
}

func TestOwnersHaveSeparateFolders(t *testing.T) {
	s, _ := newStorage(t)
	other := types.NamespacedName{Namespace: "team", Name: "other"}
	fsys := fstest.MapFS{"a": {Data: []byte("a")}}
	for _, key := range []types.NamespacedName{fleet, other} {
		if _, _, err := s.Store(t.Context(), key, fsys, artifact.PackOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, packed, err := s.Store(t.Context(), fleet, fsys, artifact.PackOptions{})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := s.Space("other")
	if _, _, err := elsewhere.Store(t.Context(), fleet, fsys, artifact.PackOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(fleet); err != nil {
		t.Fatal(err)
	}
	if there, err := elsewhere.Has(fleet, packed.Digest); err != nil || !there {
		t.Errorf("the artifact of another kind with the same name was removed: %v", err)
	}
	for key, want := range map[types.NamespacedName]bool{fleet: false, other: true} {
		if got, err := s.Has(key, packed.Digest); err != nil || got != want {
			t.Errorf("%s: %v %v, want %v", key, got, err, want)
		}
	}
}
