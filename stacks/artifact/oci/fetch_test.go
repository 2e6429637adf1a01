package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/ksctl/gitops/stacks/artifact"
)

func TestFetch(t *testing.T) {
	r := newTestRegistry(t)
	first, second := r.archive(map[string]string{"a": "1", "sub/b": "2"}), r.archive(map[string]string{"c": "3"})
	both := []layer{{first, FluxContentMediaType}, {second, types.OCILayer}}
	for name, c := range map[string]struct {
		layers   []layer
		selector string
		want     map[string]string
	}{
		"Flux artifact":      {both[:1], "", map[string]string{"a": "1", "sub/b": "2"}},
		"plain layer":        {both[1:], "", map[string]string{"c": "3"}},
		"the first layer":    {both, "", map[string]string{"a": "1", "sub/b": "2"}},
		"the selected layer": {both, string(types.OCILayer), map[string]string{"c": "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.fetchFiles(r.push("main", c.layers...), c.selector)
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("got %v %v, want %v", got, err, c.want)
			}
		})
	}
	r.expectTempDirEmpty()
}

func TestFetchReturnsAnnotations(t *testing.T) {
	r := newTestRegistry(t)
	tree, err := r.repository().Fetch(t.Context(), r.pushFiles("main", map[string]string{"a": "a"}), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := tree.Annotations["org.opencontainers.image.revision"]; got != "main@sha1:abc" {
		t.Errorf("got %q", got)
	}
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
}

func (r *testRegistry) expectTempDirEmpty() {
	r.t.Helper()
	left, err := os.ReadDir(r.tempDir)
	if (err != nil && !errors.Is(err, os.ErrNotExist)) || len(left) > 0 {
		r.t.Errorf("temporary files left: %v %v", left, err)
	}
}

func tarball(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	for _, h := range headers {
		h.Mode = 0o644
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFetchRejectsInvalidArtifacts(t *testing.T) {
	for name, c := range map[string]struct {
		content  []byte
		limits   artifact.Limits
		selector string
		reason   Reason
		terminal bool
		says     string
	}{
		"link": {content: tarball(t, tar.Header{Name: "a", Typeflag: tar.TypeSymlink,
			Linkname: "/etc/passwd"}), reason: artifact.UnsafePath, terminal: true, says: "symbolic link"},
		"path": {content: tarball(t, tar.Header{Name: "../a", Typeflag: tar.TypeReg}),
			reason: artifact.UnsafePath, terminal: true, says: `..`},
		"bomb": {content: tarball(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 1 << 20}),
			limits: artifact.Limits{UnpackedBytes: 1000}, reason: artifact.TooLarge, terminal: true},
		"large layer": {content: make([]byte, 1001), limits: artifact.Limits{DownloadBytes: 1000},
			reason: artifact.TooLarge, terminal: true, says: "1001 bytes"},
		"not a tarball": {content: []byte("text"), reason: artifact.Malformed, terminal: true,
			says: FluxContentMediaType},
		"no such layer": {content: []byte("text"), selector: "text/x", reason: LayerNotFound, terminal: true,
			says: `"text/x"; it has "` + FluxContentMediaType},
		"truncated gzip": {content: tarball(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 9})[:40],
			reason: artifact.Malformed, terminal: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRegistry(t)
			r.limits = c.limits
			_, err := r.fetchFiles(r.push("main", layer{c.content, FluxContentMediaType}), c.selector)
			expectError(t, err, c.reason, c.terminal, c.says)
			r.expectTempDirEmpty()
		})
	}
	t.Run("no layer", func(t *testing.T) {
		r := newTestRegistry(t)
		_, err := r.fetchFiles(r.push("main"), "")
		expectError(t, err, LayerNotFound, true, "no layer")
	})
	t.Run("index", func(t *testing.T) {
		r := newTestRegistry(t)
		raw, err := mutate.AppendManifests(empty.Index).RawManifest()
		if err != nil {
			t.Fatal(err)
		}
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(raw))
		r.setHook(func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", string(types.OCIImageIndex))
			_, _ = w.Write(raw)
			return true
		})
		_, err = r.fetchFiles(digest, "")
		expectError(t, err, Unsupported, true, "index")
	})
}

// respondTo answers requests whose path contains part.
func (r *testRegistry) respondTo(part string, answer http.HandlerFunc) {
	r.setHook(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, part) {
			return false
		}
		answer(w, req)
		return true
	})
}

func TestFetchFromHostileRegistry(t *testing.T) {
	archive := tarball(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 9})
	endless := func(w http.ResponseWriter, req *http.Request) {
		for req.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, to, http.StatusFound) }
	}
	for name, c := range map[string]struct {
		part     string
		answer   http.HandlerFunc
		reason   Reason
		terminal bool
		says     string
	}{
		"another manifest": {"/manifests/", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("{}"))
		}, OperationFailed, false, "does not match"},
		"another layer": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), len(archive)))
		},
			artifact.DigestMismatch, false, "have the digest"},
		"a shorter layer": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(archive[:20])
		}, OperationFailed, false, ""},
		"a truncated response": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
			_, _ = w.Write(archive[:20])
		}, OperationFailed, false, ""},
		"endless manifest": {"/manifests/", endless, artifact.TooLarge, true, ""},
		"endless layer":    {"/blobs/", endless, artifact.TooLarge, true, ""},
		"redirect to link-local": {"/blobs/", redirect("https://169.254.169.254/latest/meta-data"),
			OperationFailed, false, "169.254.169.254"},
		"redirect to IPv6 link-local": {"/blobs/", redirect("https://[fe80::1]/x"), OperationFailed, false, "fe80::1"},
		"redirect to plain http": {"/blobs/", redirect("http://127.0.0.1:1/x"), OperationFailed, false,
			"plain http"},
		"endless redirects": {"/blobs/", func(w http.ResponseWriter, req *http.Request) {
			redirect(req.URL.Path)(w, req)
		}, URLInvalid, true, "redirects"},
		"an error that contains a secret": {"/blobs/", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"errors":[{"code":"DENIED","message":"not with ` + password + `"}]}`))
		}, AuthenticationFailed, false, "DENIED"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRegistry(t)
			r.access.Keychain = staticKeychain{user, password}
			digest := r.push("main", layer{archive, FluxContentMediaType})
			r.respondTo(c.part, c.answer)
			_, err := r.fetchFiles(digest, "")
			expectError(t, err, c.reason, c.terminal, c.says)
			r.expectTempDirEmpty()
		})
	}
}

// A link-local address is refused when it is dialed, so that also a DNS name that resolves to
// one is refused.
func TestResolveRefusesLinkLocalRegistry(t *testing.T) {
	for _, host := range []string{"169.254.169.254", "[fe80::1]:5000"} {
		repo, err := NewClient(Options{}).Repository(Scheme+host+"/team/fleet", Access{Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		defer repo.Close()
		_, err = repo.Resolve(t.Context(), Ref{Tag: "main"})
		expectError(t, err, URLInvalid, true, "link-local")
	}
}

func TestResolveBoundsTagPages(t *testing.T) {
	r := newTestRegistry(t)
	r.pushFiles("v1.0.0", map[string]string{"a": "a"})
	n := 0
	r.respondTo("/tags/list", func(w http.ResponseWriter, req *http.Request) {
		n++
		w.Header().Set("Link", fmt.Sprintf(`<%s?n=1&last=%d>; rel="next"`, req.URL.Path, n))
		_, _ = w.Write([]byte(`{"name":"team/fleet","tags":["v1.0.0"]}`))
	})
	plain := httptest.NewServer(r)
	defer plain.Close()
	repo, err := NewClient(Options{}).Repository(Scheme+strings.TrimPrefix(plain.URL, "http://")+"/team/fleet",
		Access{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	_, err = repo.Resolve(t.Context(), Ref{SemVer: "1.x"})
	expectError(t, err, artifact.TooLarge, true, "requests")
}

func TestFetchSendsNoCredentialsToBlobHost(t *testing.T) {
	r := newTestRegistry(t)
	digest := r.pushFiles("main", map[string]string{"a": "a"})
	r.access.Keychain = staticKeychain{user, password}
	var headers []http.Header
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		headers = append(headers, req.Header.Clone())
		r.inner.ServeHTTP(w, req)
	}))
	defer other.Close()
	r.access.TLS.RootCAs.AddCert(other.Certificate())
	r.requireLogin()
	private := r.hook
	r.setHook(func(w http.ResponseWriter, req *http.Request) bool {
		if private(w, req) {
			return true
		}
		if strings.Contains(req.URL.Path, "/blobs/") {
			http.Redirect(w, req, other.URL+req.URL.Path, http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	files, err := r.fetchFiles(digest, "")
	if err != nil || files["a"] != "a" {
		t.Fatalf("got %v %v", files, err)
	}
	if len(headers) != 1 || headers[0].Get("Authorization") != "" {
		t.Errorf("the other server got the headers %v", headers)
	}
}

func TestReferrers(t *testing.T) {
	r := newTestRegistry(t)
	digest := r.pushFiles("main", map[string]string{"a": "a"})
	got, err := r.repository().Referrers(t.Context(), digest)
	if err != nil || len(got) != 0 {
		t.Errorf("got %v %v", got, err)
	}
	_, err = r.repository().Referrers(t.Context(), "sha256:short")
	expectError(t, err, Unsupported, true)
	r.respondTo("/referrers/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", string(types.OCIImageIndex))
		_, _ = w.Write([]byte("nonsense"))
	})
	_, err = r.repository().Referrers(t.Context(), digest)
	expectError(t, err, artifact.Malformed, false)
	r.respondTo("/referrers/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	_, err = r.repository().Referrers(t.Context(), digest)
	expectError(t, err, OperationFailed, false, "500")
}

func TestBlobEnforcesLimit(t *testing.T) {
	r := newTestRegistry(t)
	repo := r.repository()
	m, err := repo.Manifest(t.Context(), r.push("main", layer{[]byte("0123456789"), "text/plain"}))
	if err != nil || len(m.Layers) != 1 {
		t.Fatalf("got %+v %v", m, err)
	}
	if b, err := repo.Blob(t.Context(), m.Layers[0], 10); err != nil || string(b) != "0123456789" {
		t.Errorf("got %q %v", b, err)
	}
	_, err = repo.Blob(t.Context(), m.Layers[0], 9)
	expectError(t, err, artifact.TooLarge, false, "10 bytes")
	lie := m.Layers[0]
	lie.Size = 5
	if _, err := repo.Blob(t.Context(), lie, 9); err == nil {
		t.Error("accepted a blob that is larger than its descriptor")
	}
	if !slices.Equal(m.Raw[:1], []byte("{")) {
		t.Errorf("raw is %.20q", m.Raw)
	}
}

func TestSessionBoundsReceivedBytes(t *testing.T) {
	r := newTestRegistry(t)
	digest := r.pushFiles("v1.0.0", map[string]string{"a": "a"})
	n := 0
	r.respondTo("/referrers/", func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.Header().Set("Content-Type", string(types.OCIImageIndex))
		_, _ = fmt.Fprintf(w, `{"manifests":[],"annotations":{"x":%q}}`, strings.Repeat("x", 3<<20))
	})
	repo := r.repository()
	var err error
	for range sessionBytes/(3<<20) + 1 {
		if _, err = repo.Referrers(t.Context(), digest); err != nil {
			break
		}
	}
	expectError(t, err, artifact.TooLarge, true, "larger than allowed")
	if n < 2 {
		t.Errorf("refused after %d responses", n)
	}
}
