package oci

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/stacks/artifact"
)

const (
	user     = "robot"
	password = "hunter2"
)

// testRegistry is a registry over https with a client. A test can replace its responses.
type testRegistry struct {
	t       *testing.T
	server  *httptest.Server
	inner   http.Handler
	access  Access
	limits  artifact.Limits
	tempDir string

	mu sync.Mutex
	// hook may respond to a request; it returns false if it did not.
	hook     func(w http.ResponseWriter, r *http.Request) bool
	requests []string
}

func newTestRegistry(t *testing.T) *testRegistry {
	t.Helper()
	r := &testRegistry{t: t, tempDir: filepath.Join(t.TempDir(), "made"),
		inner: registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))}
	r.server = httptest.NewTLSServer(r)
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(r.server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(r.server.Certificate())
	r.access.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return r
}

func (r *testRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req.Method+" "+req.URL.Path)
	hook := r.hook
	r.mu.Unlock()
	if hook == nil || !hook(w, req) {
		r.inner.ServeHTTP(w, req)
	}
}

func (r *testRegistry) setHook(hook func(w http.ResponseWriter, r *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = hook
}

// requireLogin makes the registry reject requests without the password.
func (r *testRegistry) requireLogin() {
	r.setHook(func(w http.ResponseWriter, req *http.Request) bool {
		if u, p, _ := req.BasicAuth(); u == user && p == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="fleet"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
}

// requestsOf returns the requests that f causes.
func (r *testRegistry) requestsOf(f func()) []string {
	r.mu.Lock()
	r.requests = nil
	r.mu.Unlock()
	f()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

func (r *testRegistry) host() string { return strings.TrimPrefix(r.server.URL, "https://") }

func (r *testRegistry) repository() *Repository {
	r.t.Helper()
	repo, err := NewClient(Options{Limits: r.limits, TempDir: r.tempDir, Backoff: time.Nanosecond}).
		Repository(Scheme+r.host()+"/team/fleet", r.access)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(repo.Close)
	return repo
}

type layer struct {
	content   []byte
	mediaType types.MediaType
}

// push pushes an artifact with the layers and returns its digest.
func (r *testRegistry) push(tag string, layers ...layer) string {
	r.t.Helper()
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), FluxConfigMediaType)
	for _, l := range layers {
		var err error
		if image, err = mutate.Append(image,
			mutate.Addendum{Layer: static.NewLayer(l.content, l.mediaType)}); err != nil {
			r.t.Fatal(err)
		}
	}
	return r.write(tag,
		mutate.Annotations(image, map[string]string{"org.opencontainers.image.revision": "main@sha1:abc"}).(v1.Image))
}

func (r *testRegistry) write(tag string, image v1.Image) string {
	r.t.Helper()
	ref, err := name.NewTag(r.host() + "/team/fleet:" + tag)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	hook := r.hook
	r.hook = nil
	r.mu.Unlock()
	if err := remote.Write(ref, image,
		remote.WithTransport(&http.Transport{TLSClientConfig: r.access.TLS, DisableKeepAlives: true}),
		remote.WithAuth(authn.Anonymous)); err != nil {
		r.t.Fatal(err)
	}
	r.setHook(hook)
	digest, err := image.Digest()
	if err != nil {
		r.t.Fatal(err)
	}
	return digest.String()
}

// pushFiles pushes files in the format of Flux and returns the digest.
func (r *testRegistry) pushFiles(tag string, files map[string]string) string {
	r.t.Helper()
	return r.push(tag, layer{r.archive(files), FluxContentMediaType})
}

func (r *testRegistry) archive(files map[string]string) []byte {
	r.t.Helper()
	b, err := artifacts.Archive(artifacts.Files(files))
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// fetchFiles fetches an artifact and returns its files.
func (r *testRegistry) fetchFiles(digest, layerType string) (map[string]string, error) {
	r.t.Helper()
	tree, err := r.repository().Fetch(r.t.Context(), digest, layerType)
	if err != nil {
		return nil, err
	}
	got := map[string]string{}
	err = fs.WalkDir(tree.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(tree.FS(), name)
		got[name] = string(b)
		return err
	})
	if err := errors.Join(err, tree.Close()); err != nil {
		r.t.Fatal(err)
	}
	return got, nil
}

// expectError checks reason and terminality of an error, and that its message contains all
// of says and not the password.
func expectError(t *testing.T, err error, reason Reason, terminal bool, says ...string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != reason || e.Terminal() != terminal {
		t.Fatalf("got %T %v, want %s, terminal %v", err, err, reason, terminal)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not contain %q", err, s)
		}
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("the error contains the password: %v", err)
	}
}
