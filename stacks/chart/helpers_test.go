package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

const password = "hunter2-is-secret"

// tarEntry is an entry of a tarball; a symbolic link if to is set.
type tarEntry struct{ name, content, to string }

func tarball(t testing.TB, entries ...tarEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	tw := tar.NewWriter(gz)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.content)), Typeflag: tar.TypeReg}
		if e.to != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.to, 0
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), gz.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// archive returns a chart archive as "helm package" writes it.
func archive(t testing.TB, name, version string, more ...tarEntry) []byte {
	t.Helper()
	return tarball(t, append([]tarEntry{
		{name: name + "/Chart.yaml", content: "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n"},
		{name: name + "/templates/x.yaml", content: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"},
	}, more...)...)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// repository is a chart repository over TLS. It records the requests, and can return errors.
type repository struct {
	*httptest.Server
	t testing.TB

	mu    sync.Mutex
	files map[string][]byte
	// index has a line for each version. If raw is set, the server returns raw instead.
	index map[string][]string
	raw   []byte
	// intercept returns true if it answered the request.
	intercept func(w http.ResponseWriter, r *http.Request) bool
	requests  []string
}

func newRepository(t testing.TB) *repository {
	t.Helper()
	r := &repository{t: t, files: map[string][]byte{}, index: map[string][]string{}}
	r.Server = httptest.NewTLSServer(r)
	r.Config.ErrorLog = nil
	t.Cleanup(r.Close)
	return r
}

func (r *repository) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	user, _, _ := req.BasicAuth()
	r.requests = append(r.requests, strings.TrimSpace(req.Method+" "+req.URL.Path+" "+user))
	if r.intercept != nil && r.intercept(w, req) {
		return
	}
	if req.URL.Path == "/index.yaml" {
		if r.raw != nil {
			_, _ = w.Write(r.raw)
			return
		}
		_, _ = fmt.Fprint(w, "apiVersion: v1\nentries:\n")
		for name, lines := range r.index {
			_, _ = fmt.Fprintf(w, "  %s:\n%s", name, strings.Join(lines, ""))
		}
		return
	}
	data, there := r.files[req.URL.Path]
	if !there {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = w.Write(data)
}

// list adds a version to the index.
func (r *repository) list(name, version, digest, url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index[name] = append(r.index[name],
		fmt.Sprintf("  - {name: %s, version: %q, digest: %q, urls: [%q]}\n", name, version, digest, url))
}

// add adds a chart to the index and the files.
func (r *repository) add(name, version string, data []byte) {
	file := name + "-" + version + ".tgz"
	r.list(name, version, strings.TrimPrefix(digestOf(data), "sha256:"), file)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files["/"+file] = data
}

func (r *repository) requireLogin() {
	r.intercept = func(w http.ResponseWriter, req *http.Request) bool {
		if user, pass, _ := req.BasicAuth(); user == "me" && pass == password {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte("you sent " + req.Header.Get("Authorization")))
		return true
	}
}

func (r *repository) requestCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

func (r *repository) ca() []byte { return caOf(r.Server) }

func caOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// accessBuilder builds the Access to a repository.
type accessBuilder struct {
	repo    appsv1.ChartRepository
	secrets Secrets
}

func newAccessBuilder(url string, ca []byte) *accessBuilder {
	named := &fluxmeta.LocalObjectReference{Name: "any"}
	return &accessBuilder{repo: appsv1.ChartRepository{Repository: url, CertSecretRef: named},
		secrets: Secrets{Certificates: map[string][]byte{"ca.crt": ca}}}
}

func (r *accessBuilder) withLogin(user, pass string) *accessBuilder {
	r.repo.SecretRef = &fluxmeta.LocalObjectReference{Name: "login"}
	r.secrets.Credentials = map[string][]byte{"username": []byte(user), "password": []byte(pass)}
	return r
}

func (r *accessBuilder) withKeys(keys ...[]byte) *accessBuilder {
	r.repo.Verify = &appsv1.ChartVerification{Provider: appsv1.ChartProvenance,
		SecretRef: &fluxmeta.LocalObjectReference{Name: "keys"}}
	r.secrets.Keys = map[string][]byte{}
	for i, k := range keys {
		r.secrets.Keys[fmt.Sprint("key", i)] = k
	}
	return r
}

func (r *accessBuilder) build(t testing.TB) *Access {
	t.Helper()
	a, err := NewAccess(&r.repo, r.secrets)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newFetcher(t testing.TB, o Options) *Fetcher {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Attempts, o.Backoff = 1, time.Millisecond
	f, err := NewFetcher(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ref(repository, name, version string) stacks.ChartRef {
	return stacks.ChartRef{Component: "main", Repository: repository, Name: name, Version: version}
}

// assertError checks reason, class and texts of an *Error, and that it contains no password.
func assertError(t *testing.T, err error, reason Reason, terminal bool, texts ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	if e.Reason != reason || e.Terminal() != terminal {
		t.Errorf("got %s, terminal %v; want %s, %v: %v", e.Reason, e.Terminal(), reason, terminal, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not contain %q: %v", text, err)
		}
	}
	if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "aHVudGVy") {
		t.Errorf("the error contains the password: %v", err)
	}
}

// get fetches a chart and releases it at once.
func get(t testing.TB, f *Fetcher, r stacks.ChartRef, a *Access) (stacks.FetchedChart, error) {
	t.Helper()
	chart, release, err := f.Fetch(t.Context(), r, a)
	if err == nil {
		release()
	}
	return chart, err
}

var smallLimits = artifact.Limits{DownloadBytes: 1 << 20, UnpackedBytes: 1 << 16, FileBytes: 1 << 15, Files: 20,
	Depth: 5}
