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

type login struct{ user, password string }

// Resolve implements authn.Keychain.
func (l login) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig{Username: l.user, Password: l.password}), nil
}

func TestResolve(t *testing.T) {
	r := newRig(t)
	digests := map[string]string{}
	for _, tag := range []string{"latest", "main", "v1.2.0", "1.10.0", "v2.0.0", "v3.0.0-rc.1", "1.2", "v01.2.3", "not-a-version"} {
		digests[tag] = r.tree(tag, map[string]string{"a": tag})
	}
	for name, c := range map[string]struct {
		ref Ref
		tag string
	}{
		"nothing":                  {Ref{}, "latest"},
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
			if want := (Target{Tag: c.tag, Digest: digests[c.tag]}); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if want := c.tag + "@" + digests[c.tag]; got.Revision() != want {
				t.Errorf("got %s, want %s", got.Revision(), want)
			}
		})
	}
	t.Run("digest", func(t *testing.T) {
		var got Target
		var err error
		asked := r.asked(func() { got, err = r.repository().Resolve(t.Context(), Ref{Digest: digests["main"], Tag: "v1.2.0"}) })
		if err != nil || got.Digest != digests["main"] || got.Revision() != digests["main"] || len(asked) != 0 {
			t.Errorf("got %v %v after %v", got, err, asked)
		}
	})
}

func TestResolveAsksForNoContent(t *testing.T) {
	r := newRig(t)
	r.tree("main", map[string]string{"a": "a"})
	asked := r.asked(func() {
		if _, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"}); err != nil {
			t.Fatal(err)
		}
	})
	if want := []string{"GET /v2/", "HEAD /v2/team/fleet/manifests/main"}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
}

func TestResolveWithoutHead(t *testing.T) {
	r := newRig(t)
	want := r.tree("main", map[string]string{"a": "a"})
	for name, hook := range map[string]http.HandlerFunc{
		"not allowed": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"no digest":   func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "application/json") },
	} {
		r.answer(func(w http.ResponseWriter, req *http.Request) bool {
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

func TestResolveRefuses(t *testing.T) {
	r := newRig(t)
	r.tree("v1.0.0", map[string]string{"a": "a"})
	for name, c := range map[string]struct {
		ref      Ref
		reason   Reason
		terminal bool
		says     string
	}{
		"tag that is not there":  {Ref{Tag: "mian"}, ArtifactNotFound, false, "team/fleet:mian"},
		"range without a tag":    {Ref{SemVer: "2.x"}, TagNotFound, false, `"v1.0.0"`},
		"not a range":            {Ref{SemVer: "newest"}, SemVerInvalid, true, `"newest"`},
		"digest of another hash": {Ref{Digest: "sha512:" + strings.Repeat("0", 128)}, Unsupported, true, "sha512"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.repository().Resolve(t.Context(), c.ref)
			refused(t, err, c.reason, c.terminal, c.says)
		})
	}
}

func TestCredentials(t *testing.T) {
	r := newRig(t)
	want := r.tree("main", map[string]string{"a": "a"})
	r.private()
	_, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	refused(t, err, AuthenticationRequired, false, "credentials", "team/fleet:main")
	r.access.Keychain = login{user, "wrong-" + password}
	_, err = r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	refused(t, err, AuthenticationFailed, false, "team/fleet:main")
	r.access.Keychain = login{user, password}
	got, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	if err != nil || got.Digest != want {
		t.Fatalf("got %v %v", got, err)
	}
	if files, err := r.files(want, Selector{}); err != nil || files["a"] != "a" {
		t.Errorf("got %v %v", files, err)
	}
}

func TestTokens(t *testing.T) {
	r := newRig(t)
	want := r.tree("main", map[string]string{"a": "a"})
	r.access.Keychain = login{user, password}
	r.answer(func(w http.ResponseWriter, req *http.Request) bool {
		switch {
		case req.URL.Path == "/token":
			if u, p, _ := req.BasicAuth(); u != user || p != password || req.URL.Query().Get("scope") != "repository:team/fleet:pull" {
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

func TestAuthorityOfTheRegistry(t *testing.T) {
	r := newRig(t)
	r.tree("main", map[string]string{"a": "a"})
	r.access.TLS = nil
	_, err := r.repository().Resolve(t.Context(), Ref{Tag: "main"})
	refused(t, err, OperationFailed, false, "certificate")
}

func TestProxy(t *testing.T) {
	r := newRig(t)
	want := r.tree("main", map[string]string{"a": "a"})
	var mu sync.Mutex // a connection that turned out not to be needed may still be on its way
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
	r.access.TLS.ServerName = "example.com" // what the certificate is for
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
		t.Errorf("the proxy was asked %v", asked)
	}
}

// tunnel connects a client of a proxy with a server.
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

func TestPlainHTTP(t *testing.T) {
	r := newRig(t)
	want := r.tree("main", map[string]string{"a": "a"})
	var leaked bool
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		leaked = leaked || req.Header.Get("Authorization") != ""
		r.ServeHTTP(w, req)
	}))
	defer plain.Close()
	at := Scheme + strings.TrimPrefix(plain.URL, "http://") + "/team/fleet"
	for insecure := range 2 {
		repo, err := NewClient(Options{}).Repository(at, Access{Keychain: login{user, password}, Insecure: insecure == 1})
		if err != nil {
			t.Fatal(err)
		}
		defer repo.Close()
		got, err := repo.Resolve(t.Context(), Ref{Tag: "main"})
		if insecure == 0 {
			refused(t, err, OperationFailed, false, "insecure: true")
			if leaked {
				t.Error("the credentials went in the clear")
			}
			continue
		}
		if err != nil || got.Digest != want {
			t.Errorf("got %v %v", got, err)
		}
	}
}

func TestURLs(t *testing.T) {
	for _, u := range []string{
		"", "https://registry.example.com/team/fleet", "oci://", "oci://registry.example.com", "oci://registry.example.com/",
		"oci://registry.example.com/team/fleet:main", "oci://registry.example.com/team/fleet@sha256:" + strings.Repeat("0", 64),
		"oci://" + user + ":" + password + "@registry.example.com/team/fleet", "oci://registry.example.com/Team/Fleet", "oci://nginx", "oci://a b/c",
	} {
		_, err := NewClient(Options{}).Repository(u, Access{})
		refused(t, err, URLInvalid, true, "oci://<registry>/<repository>")
	}
}

func TestTakesTooLong(t *testing.T) {
	r := newRig(t)
	gone := make(chan struct{})
	r.answer(func(_ http.ResponseWriter, req *http.Request) bool {
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
	refused(t, err, OperationFailed, false, "timeout of 1ns")
}

func TestOverloadedRegistryIsAskedAgain(t *testing.T) {
	r := newRig(t)
	want := r.tree("main", map[string]string{"a": "a"})
	failing := 2
	r.answer(func(w http.ResponseWriter, req *http.Request) bool {
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
