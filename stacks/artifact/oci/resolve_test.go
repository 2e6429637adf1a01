package oci

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
)

type staticKeychain struct{ user, password string }

// Resolve implements authn.Keychain.
func (l staticKeychain) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig{Username: l.user, Password: l.password}), nil
}

func TestResolve(t *testing.T) {
	r := newTestRegistry(t)
	digests := map[string]string{}
	for _, tag := range []string{"latest", "main", "v1.2.0", "1.10.0", "v2.0.0", "v3.0.0-rc.1", "1.2", "v01.2.3",
		"not-a-version"} {
		digests[tag] = r.pushFiles(tag, map[string]string{"a": tag})
	}
	for name, c := range map[string]struct {
		ref Ref
		tag string
	}{
		"no reference":             {Ref{}, "latest"},
		"tag":                      {Ref{Tag: "main"}, "main"},
		"range":                    {Ref{SemVer: "1.x"}, "1.10.0"},
		"range beats tag":          {Ref{SemVer: "^1.0.0", Tag: "main"}, "1.10.0"},
		"no prerelease":            {Ref{SemVer: ">=1.0.0"}, "v2.0.0"},
		"prerelease":               {Ref{SemVer: ">=1.0.0-0"}, "v3.0.0-rc.1"},
		"one version, without a v": {Ref{SemVer: "1.2.0"}, "v1.2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.repository().Resolve(t.Context(), c.ref)
			if err != nil {
				t.Fatal(err)
			}
			if want := (ResolvedRef{Tag: c.tag, Digest: digests[c.tag]}); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if want := c.tag + "@" + digests[c.tag]; got.Revision() != want {
				t.Errorf("got %s, want %s", got.Revision(), want)
			}
		})
	}
	t.Run("digest", func(t *testing.T) {
		var got ResolvedRef
		var err error
		asked := r.requestsOf(func() {
			got, err = r.repository().Resolve(t.Context(), Ref{Digest: digests["main"], Tag: "v1.2.0"})
		})
		if err != nil || got.Digest != digests["main"] || got.Revision() != digests["main"] || len(asked) != 0 {
			t.Errorf("got %v %v after %v", got, err, asked)
		}
	})
}

func TestResolveSendsOnlyHead(t *testing.T) {
	r := newTestRegistry(t)
	r.pushFiles("main", map[string]string{"a": "a"})
	asked := r.requestsOf(func() {
		if _, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"}); err != nil {
			t.Fatal(err)
		}
	})
	if want := []string{"GET /v2/", "HEAD /v2/team/fleet/manifests/main"}; !slices.Equal(asked, want) {
		t.Errorf("requests %v, want %v", asked, want)
	}
}

func TestResolveFallsBackToGet(t *testing.T) {
	r := newTestRegistry(t)
	want := r.pushFiles("main", map[string]string{"a": "a"})
	for name, hook := range map[string]http.HandlerFunc{
		"not allowed": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"no digest": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
		},
	} {
		r.setHook(func(w http.ResponseWriter, req *http.Request) bool {
			if req.Method == http.MethodHead {
				hook(w, req)
			}
			return req.Method == http.MethodHead
		})
		got, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"})
		if err != nil || got.Digest != want {
			t.Errorf("%s: got %v %v, want %s", name, got, err, want)
		}
	}
}

func TestResolveRejectsInvalidReferences(t *testing.T) {
	r := newTestRegistry(t)
	r.pushFiles("v1.0.0", map[string]string{"a": "a"})
	for name, c := range map[string]struct {
		ref      Ref
		reason   Reason
		terminal bool
		says     string
	}{
		"unknown tag":            {Ref{Tag: "mian"}, ArtifactNotFound, false, "team/fleet:mian"},
		"range without a tag":    {Ref{SemVer: "2.x"}, TagNotFound, false, `"v1.0.0"`},
		"not a range":            {Ref{SemVer: "newest"}, SemVerInvalid, true, `"newest"`},
		"digest of another hash": {Ref{Digest: "sha512:" + strings.Repeat("0", 128)}, Unsupported, true, "sha512"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.repository().Resolve(t.Context(), c.ref)
			expectError(t, err, c.reason, c.terminal, c.says)
		})
	}
}

func TestRegistryCredentials(t *testing.T) {
	r := newTestRegistry(t)
	want := r.pushFiles("main", map[string]string{"a": "a"})
	r.requireLogin()
	_, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	expectError(t, err, AuthenticationRequired, false, "credentials", "team/fleet:main")
	r.access.Keychain = staticKeychain{user, "wrong-" + password}
	_, err = r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	expectError(t, err, AuthenticationFailed, false, "team/fleet:main")
	r.access.Keychain = staticKeychain{user, password}
	got, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	if err != nil || got.Digest != want {
		t.Fatalf("got %v %v", got, err)
	}
	if files, err := r.fetchFiles(want, ""); err != nil || files["a"] != "a" {
		t.Errorf("got %v %v", files, err)
	}
}

func TestTokenAuthentication(t *testing.T) {
	r := newTestRegistry(t)
	want := r.pushFiles("main", map[string]string{"a": "a"})
	r.access.Keychain = staticKeychain{user, password}
	r.setHook(func(w http.ResponseWriter, req *http.Request) bool {
		switch {
		case req.URL.Path == "/token":
			if u, p, _ := req.BasicAuth(); u != user || p != password ||
				req.URL.Query().Get("scope") != "repository:team/fleet:pull" {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			_, _ = w.Write([]byte(`{"token":"t0ken"}`))
			return true
		case req.Header.Get("Authorization") != "Bearer t0ken":
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x"`, r.server.URL))
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	})
	got, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	if err != nil || got.Digest != want {
		t.Fatalf("got %v %v", got, err)
	}
}

func TestUnknownAuthorityIsRefused(t *testing.T) {
	r := newTestRegistry(t)
	r.pushFiles("main", map[string]string{"a": "a"})
	r.access.TLS = nil
	_, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	expectError(t, err, OperationFailed, false, "certificate")
}

func TestProxyWithCredentials(t *testing.T) {
	r := newTestRegistry(t)
	want := r.pushFiles("main", map[string]string{"a": "a"})
	var mu sync.Mutex // an unused connection may still arrive
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		asked = append(asked, req.Method+" "+req.Host+" "+req.Header.Get("Proxy-Authorization"))
		mu.Unlock()
		tunnel(t, w, r.host())
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(user, password)
	r.access.Proxy = address
	r.access.TLS.ServerName = "example.com" // the name in the certificate
	repo, err := NewClient(Options{}).Repository("oci://registry.example.com/team/fleet", r.access)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	got, err := repo.Resolve(t.Context(), Ref{Tag: "main"})
	if err != nil || got.Digest != want {
		t.Fatalf("got %v %v", got, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) == 0 || !strings.HasPrefix(asked[0], "CONNECT registry.example.com:443 Basic ") {
		t.Errorf("the proxy got the requests %v", asked)
	}
}

// tunnel connects a client of the proxy to a server.
func tunnel(t *testing.T, w http.ResponseWriter, host string) {
	up, err := net.Dial("tcp", host)
	if err != nil {
		t.Error(err)
		return
	}
	w.WriteHeader(http.StatusOK)
	down, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	done := make(chan struct{}, 2)
	pipe := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		done <- struct{}{}
	}
	go pipe(up, down)
	go pipe(down, up)
	<-done
	_ = up.Close()
	_ = down.Close()
	<-done
}

func TestPlainHTTPRequiresInsecure(t *testing.T) {
	r := newTestRegistry(t)
	want := r.pushFiles("main", map[string]string{"a": "a"})
	var leaked bool
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		leaked = leaked || req.Header.Get("Authorization") != ""
		r.ServeHTTP(w, req)
	}))
	defer plain.Close()
	at := Scheme + strings.TrimPrefix(plain.URL, "http://") + "/team/fleet"
	for insecure := range 2 {
		repo, err := NewClient(Options{}).
			Repository(at, Access{Keychain: staticKeychain{user, password}, Insecure: insecure == 1})
		if err != nil {
			t.Fatal(err)
		}
		defer repo.Close()
		got, err := repo.Resolve(t.Context(), Ref{Tag: "main"})
		if insecure == 0 {
			expectError(t, err, OperationFailed, false, "insecure: true")
			if leaked {
				t.Error("the credentials were sent unencrypted")
			}
			continue
		}
		if err != nil || got.Digest != want {
			t.Errorf("got %v %v", got, err)
		}
	}
}

func TestRepositoryRejectsInvalidURLs(t *testing.T) {
	for _, u := range []string{
		"", "https://registry.example.com/team/fleet", "oci://", "oci://registry.example.com",
		"oci://registry.example.com/",
		"oci://registry.example.com/team/fleet:main", "oci://registry.example.com/team/fleet@sha256:" +
			strings.Repeat("0", 64),
		"oci://" + user + ":" + password + "@registry.example.com/team/fleet", "oci://registry.example.com/Team/Fleet",
		"oci://nginx", "oci://a b/c",
	} {
		_, err := NewClient(Options{}).Repository(u, Access{})
		expectError(t, err, URLInvalid, true, "oci://<registry>/<repository>")
	}
}

func TestResolveReturnsTimeoutCause(t *testing.T) {
	r := newTestRegistry(t)
	gone := make(chan struct{})
	r.setHook(func(_ http.ResponseWriter, req *http.Request) bool {
		select {
		case <-req.Context().Done():
		case <-gone:
		}
		return true
	})
	defer close(gone)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 1, fmt.Errorf("not finished within the timeout of 1ns"))
	defer cancel()
	_, err := r.repository().Resolve(ctx, Ref{Tag: "main"})
	expectError(t, err, OperationFailed, false, "timeout of 1ns")
}

func TestResolveRetriesOverloadedRegistry(t *testing.T) {
	r := newTestRegistry(t)
	want := r.pushFiles("main", map[string]string{"a": "a"})
	failing := 2
	r.setHook(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path == "/v2/" || failing == 0 {
			return false
		}
		failing--
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	got, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	if err != nil || got.Digest != want {
		t.Errorf("got %v %v", got, err)
	}
}
