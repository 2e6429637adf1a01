package chart

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// ociServer is a registry over TLS. intercept can answer a request instead of the registry.
type ociServer struct {
	*httptest.Server
	t testing.TB

	mu        sync.Mutex
	intercept func(w http.ResponseWriter, r *http.Request) bool
	requests  []string
}

func newRegistry(t testing.TB) *ociServer {
	t.Helper()
	s := &ociServer{t: t}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		intercept := s.intercept
		s.mu.Unlock()
		if intercept == nil || !intercept(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *ociServer) setIntercept(intercept func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = intercept
}

func (s *ociServer) host() string { return strings.TrimPrefix(s.URL, "https://") }

func (s *ociServer) url() string { return "oci://" + s.host() + "/charts" }

func (s *ociServer) accessBuilder(t testing.TB) *accessBuilder {
	return newAccessBuilder(s.url(), caOf(s.Server))
}

// push pushes a chart like "helm push", and returns the digest of its manifest.
func (s *ociServer) push(chart, version string, layers map[types.MediaType][]byte) string {
	s.t.Helper()
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		"application/vnd.cncf.helm.config.v1+json")
	for mediaType, data := range layers {
		var err error
		if image, err = mutate.Append(image, mutate.Addendum{Layer: static.NewLayer(data, mediaType)}); err != nil {
			s.t.Fatal(err)
		}
	}
	tag, err := name.NewTag(s.host() + "/charts/" + chart + ":" + strings.ReplaceAll(version, "+", "_"))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := remote.Write(tag, image, remote.WithTransport(s.Client().Transport),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: "me", Password: password}))); err != nil {
		s.t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		s.t.Fatal(err)
	}
	return digest.String()
}

func contentLayer(data []byte) map[types.MediaType][]byte {
	return map[types.MediaType][]byte{contentMediaType: data}
}

func TestFetchFromRegistry(t *testing.T) {
	s := newRegistry(t)
	data := archive(t, "web", "1.2.3+build.4")
	manifest := s.push("web", "1.2.3+build.4", contentLayer(data))
	f := newFetcher(t, Options{})
	access := s.accessBuilder(t).build(t)
	wanted := ref(s.url(), "web", "1.2.3+build.4")
	for _, pin := range []string{"", manifest, digestOf(data)} {
		wanted.Digest = pin
		chart, err := get(t, f, wanted, access)
		if err != nil || chart.Digest != digestOf(data) {
			t.Errorf("pinned to %q: %s, %v", pin, chart.Digest, err)
		}
	}
	wanted.Digest = digestOf(nil)
	_, err := get(t, f, wanted, access)
	assertError(t, err, DigestMismatch, true, manifest, wanted.Digest)
	// A resolved chart needs no request.
	s.Close()
	wanted.Digest = ""
	if _, err := get(t, f, wanted, access); err != nil {
		t.Error(err)
	}
}

func TestFetchFromRegistryRefuses(t *testing.T) {
	good := archive(t, "web", "1.0.0")
	answers := func(part string, code int) func(*ociServer) {
		return func(s *ociServer) {
			s.push("web", "1.0.0", contentLayer(good))
			s.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, part) {
					w.WriteHeader(code)
					_, _ = w.Write([]byte(`{"errors":[{"code":"DENIED","message":"you sent ` + password + `"}]}`))
				}
				return strings.Contains(r.URL.Path, part)
			})
		}
	}
	for name, c := range map[string]struct {
		set      func(*ociServer)
		reason   Reason
		terminal bool
		text     string
	}{
		"no such version": {func(s *ociServer) {
			s.push("web", "0.9.0", contentLayer(good))
			s.push("web", "1.0.1+x", contentLayer(good))
		}, NotFound, true, "does not have this chart and version; nearest versions: 0.9.0, 1.0.1+x"},
		"no such chart": {func(*ociServer) {}, NotFound, true, "does not have this chart"},
		"not a chart": {func(s *ociServer) {
			s.push("web", "1.0.0", map[types.MediaType][]byte{types.OCILayer: good})
		}, RepositoryInvalid, true, "not a Helm chart"},
		"decompression bomb": {func(s *ociServer) {
			s.push("web", "1.0.0",
				contentLayer(archive(t, "web", "1.0.0", tarEntry{name: "web/x", content: strings.Repeat("x", 1<<16)})))
		}, "TooLarge", true, "32768"},
		"unauthorized":     {answers("/v2/", 401), AccessDenied, false, "401"},
		"forbidden":        {answers("/manifests/", 403), AccessDenied, false, "403"},
		"unavailable":      {answers("/v2/", 503), Unreachable, false, "503"},
		"invalid manifest": {answers("/manifests/", 200), RepositoryInvalid, true, "not a Helm chart"},
		"missing blob":     {answers("/blobs/", 404), Unreachable, false, "does not have it"},
		"wrong blob": {func(s *ociServer) {
			s.push("web", "1.0.0", contentLayer(good))
			s.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/blobs/") {
					_, _ = w.Write([]byte("other"))
				}
				return strings.Contains(r.URL.Path, "/blobs/")
			})
		}, DigestMismatch, false, "does not have the digest"},
		"manifest too large": {func(s *ociServer) {
			s.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/manifests/") {
					_, _ = w.Write(make([]byte, maxManifest+1))
				}
				return strings.Contains(r.URL.Path, "/manifests/")
			})
		}, RepositoryInvalid, true, "4194304 bytes allowed"},
		"redirect to a link-local address": {func(s *ociServer) {
			s.push("web", "1.0.0", contentLayer(good))
			s.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/blobs/") {
					http.Redirect(w, r, "https://169.254.169.254/", http.StatusTemporaryRedirect)
				}
				return strings.Contains(r.URL.Path, "/blobs/")
			})
		}, "RefusedAddress", true, "link-local"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRegistry(t)
			c.set(s)
			_, err := get(t, newFetcher(t, Options{Limits: smallLimits}), ref(s.url(), "web", "1.0.0"),
				s.accessBuilder(t).withLogin("me", password).build(t))
			assertError(t, err, c.reason, c.terminal, c.text)
		})
	}
}

func TestPlainHTTPRegistryRequiresInsecure(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	address := "oci://" + strings.TrimPrefix(s.URL, "http://") + "/charts"
	f := newFetcher(t, Options{})
	_, err := get(t, f, ref(address, "web", "1.0.0"), nil)
	assertError(t, err, "RefusedAddress", true, "plain HTTP")
	how := newAccessBuilder(address, nil)
	how.repo.CertSecretRef, how.repo.Insecure = nil, true
	_, err = get(t, f, ref(address, "web", "1.0.0"), how.build(t))
	assertError(t, err, NotFound, true)
	how.repo.Repository = "https://charts.example.com"
	_, err = NewAccess(&how.repo, how.secrets)
	assertError(t, err, RepositoryInvalid, true, "only allowed for oci://")
}

func TestFetchFromRegistryWithCredentials(t *testing.T) {
	s := newRegistry(t)
	s.push("web", "1.0.0", contentLayer(archive(t, "web", "1.0.0")))
	s.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
		if user, pass, _ := r.BasicAuth(); user == "me" && pass == password {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	wanted := ref(s.url(), "web", "1.0.0")
	_, err := get(t, newFetcher(t, Options{}), wanted, s.accessBuilder(t).build(t))
	assertError(t, err, AccessDenied, false, "401")
	_, err = get(t, newFetcher(t, Options{}), wanted, s.accessBuilder(t).withLogin("me", "guessed").build(t))
	assertError(t, err, AccessDenied, false, "401")
	if _, err := get(t, newFetcher(t, Options{}), wanted, s.accessBuilder(t).withLogin("me", password).
		build(t)); err != nil {
		t.Error(err)
	}
	how := s.accessBuilder(t).withLogin("me", password)
	how.secrets.Credentials = map[string][]byte{".dockerconfigjson": fmt.Appendf(nil,
		`{"auths": {"other": {"auth": "eDp5"}, "https://%s/v1/": {"username": "me", "password": %q}}}`, s.host(),
		password)}
	if _, err := get(t, newFetcher(t, Options{}), wanted, how.build(t)); err != nil {
		t.Error(err)
	}
}

// A registry often redirects blobs to another host. That host gets no credentials, also if it asks
// for them.
func TestRegistryCredentialsAreNotSentToOtherHosts(t *testing.T) {
	for name, challenge := range map[string]string{
		"no challenge": "",
		"basic":        `Basic realm="x"`,
		"token":        `Bearer realm="%s/token",service="x"`,
	} {
		t.Run(name, func(t *testing.T) {
			s, data := newRegistry(t), archive(t, "web", "1.0.0")
			s.push("web", "1.0.0", contentLayer(data))
			var mu sync.Mutex
			var saw []string
			var elsewhere *httptest.Server
			elsewhere = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				body, _ := io.ReadAll(r.Body)
				saw = append(saw, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
				if challenge == "" {
					_, _ = w.Write(data)
					return
				}
				text := challenge
				if strings.Contains(text, "%s") {
					text = fmt.Sprintf(text, elsewhere.URL)
				}
				w.Header().Set("WWW-Authenticate", text)
				w.WriteHeader(http.StatusUnauthorized)
			}))
			t.Cleanup(elsewhere.Close)
			// The token server of the registry itself does get the credentials.
			asked := false
			s.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.URL.Path == "/token":
					user, pass, _ := r.BasicAuth()
					asked = user == "me" && pass == password
					_, _ = w.Write([]byte(`{"token": "t0ken"}`))
				case r.Header.Get("Authorization") != "Bearer t0ken":
					w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="x"`, s.URL))
					w.WriteHeader(http.StatusUnauthorized)
				case strings.Contains(r.URL.Path, "/blobs/"):
					http.Redirect(w, r, elsewhere.URL+"/x", http.StatusTemporaryRedirect)
				default:
					return false
				}
				return true
			})
			_, err := get(t, newFetcher(t, Options{}), ref(s.url(), "web", "1.0.0"),
				s.accessBuilder(t).withLogin("me", password).build(t))
			if (err == nil) != (challenge == "") {
				t.Error(err)
			}
			if !asked || len(saw) == 0 {
				t.Errorf("token server received the credentials: %v; the other host received %q", asked, saw)
			}
			for _, request := range saw {
				if strings.Contains(request, "Basic ") || strings.Contains(request, "Bearer ") ||
					strings.Contains(request, password) {
					t.Errorf("the other host received credentials: %q", request)
				}
			}
		})
	}
}
