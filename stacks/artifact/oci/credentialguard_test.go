package oci

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/artifact"
)

type roundTripFunc func(*http.Request) *http.Response

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// The guard wraps the transport below the registry library, because the library decides what
// it sends, and content servers can request credentials.
func TestCredentialGuardRemovesCredentials(t *testing.T) {
	var saw string
	answer := &http.Response{StatusCode: 200, Body: http.NoBody}
	transport := NewCredentialGuard(roundTripFunc(func(r *http.Request) *http.Response {
		saw = r.Header.Get("Authorization")
		return answer
	}), "r.example.com")
	send := func(method, url string) error {
		t.Helper()
		saw = "nothing"
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Basic x")
		resp, err := transport.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		if r.Header.Get("Authorization") != "Basic x" {
			t.Error("the caller's request was changed")
		}
		return err
	}
	for _, c := range []struct{ method, url, saw string }{
		{"GET", "https://r.example.com/v2/", "Basic x"},
		{"GET", "https://R.example.com:443/v2/", "Basic x"},
		{"GET", "https://r.example.com:444/v2/", ""},
		{"GET", "https://sub.r.example.com/v2/", ""},
		{"GET", "https://auth.example.com/token", ""},
	} {
		if err := send(c.method, c.url); err != nil || saw != c.saw {
			t.Errorf("%s %s: saw %q, %v", c.method, c.url, saw, err)
		}
	}
	if _, ok := artifact.AsRefusedAddress(send("POST", "https://auth.example.com/token")); !ok || saw != "nothing" {
		t.Errorf("a POST to another host: saw %q", saw)
	}
	// The registry can name a token server, another host can't.
	answer = &http.Response{StatusCode: 401, Body: http.NoBody,
		Header: http.Header{"Www-Authenticate": {`Bearer realm="https://auth.example.com/token",service="x"`}}}
	for _, c := range []struct {
		asked, saw string
	}{{"https://content.example.com/", ""}, {"https://r.example.com/v2/", "Basic x"}} {
		if err := send("GET", c.asked); err != nil {
			t.Error(err)
		}
		if err := send("GET", "https://auth.example.com/token"); err != nil || saw != c.saw {
			t.Errorf("after a challenge by %s: saw %q, %v", c.asked, saw, err)
		}
	}
}

// A hostile server gets no credentials if the registry or its token server redirects to it.
func TestRedirectTargetsGetNoCredentials(t *testing.T) {
	const own, evil = "registry.example.com", "evil.example.net"
	registry, hostile := newTestRegistry(t), newTestRegistry(t)
	var credentials []string
	hostile.setHook(func(w http.ResponseWriter, req *http.Request) bool {
		// the token that the hostile server issued itself
		if a := req.Header.Get("Authorization"); a != "" && a != "Bearer theirs" {
			credentials = append(credentials, req.URL.Path+" "+a)
		}
		if req.URL.Path == "/token" {
			_, _ = w.Write([]byte(`{"token":"theirs"}`))
			return true
		}
		requireAuth(w, `Bearer realm="https://`+evil+`/token",service="x"`)
		return true
	})
	token := `Bearer realm="https://` + own + `/token",service="x"`
	for name, hook := range map[string]func(w http.ResponseWriter, req *http.Request) bool{
		"every request is redirected": func(http.ResponseWriter, *http.Request) bool { return false },
		"the token server redirects": func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != "/token" {
				requireAuth(w, token)
			}
			return req.URL.Path != "/token"
		},
		"a manifest is redirected after login with a password": func(w http.ResponseWriter, req *http.Request) bool {
			if _, _, ok := req.BasicAuth(); !ok {
				requireAuth(w, `Basic realm="fleet"`)
				return true
			}
			return req.URL.Path == "/v2/"
		},
		"a manifest is redirected after login with a token": func(w http.ResponseWriter, req *http.Request) bool {
			switch {
			case req.URL.Path == "/token":
				_, _ = w.Write([]byte(`{"token":"t0ken"}`))
			case req.Header.Get("Authorization") != "Bearer t0ken":
				requireAuth(w, token)
			default:
				return false
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			credentials = nil
			registry.setHook(func(w http.ResponseWriter, req *http.Request) bool {
				if !hook(w, req) {
					http.Redirect(w, req, "https://"+evil+req.URL.RequestURI(), http.StatusTemporaryRedirect)
				}
				return true
			})
			repo, err := NewClient(Options{}).
				Repository(Scheme+own+"/team/fleet",
					proxyAccess(t, map[string]*testRegistry{own: registry, evil: hostile}))
			if err != nil {
				t.Fatal(err)
			}
			defer repo.Close()
			asked := hostile.requestsOf(func() { _, err = repo.Resolve(t.Context(), Ref{Tag: "main"}) })
			if err == nil || strings.Contains(err.Error(), password) {
				t.Errorf("got %v, want an error without the password", err)
			}
			if len(asked) == 0 {
				t.Error("the hostile server got no request, so the test proves nothing")
			}
			if len(credentials) > 0 {
				t.Errorf("the hostile server got the credentials %v", credentials)
			}
		})
	}
}

func requireAuth(w http.ResponseWriter, challenge string) {
	w.Header().Set("WWW-Authenticate", challenge)
	w.WriteHeader(http.StatusUnauthorized)
}

// proxyAccess returns an Access with credentials and a proxy to the registries of hosts.
func proxyAccess(t *testing.T, hosts map[string]*testRegistry) Access {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		tunnel(t, w, hosts[strings.TrimSuffix(req.Host, ":443")].host())
	}))
	t.Cleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	for _, r := range hosts {
		pool.AddCert(r.server.Certificate())
	}
	// The certificates of the test servers are for example.com.
	return Access{Keychain: staticKeychain{user, password}, Proxy: address,
		TLS: &tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS12}}
}
