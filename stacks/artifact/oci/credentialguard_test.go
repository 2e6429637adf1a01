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

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// What a library sends, and where a registry's content asks for more, is not up to
// us: the guard stands below all of it.
func TestGuard(t *testing.T) {
	var saw string
	answer := &http.Response{StatusCode: 200, Body: http.NoBody}
	guard := NewGuard(roundTrip(func(r *http.Request) *http.Response {
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
		resp, err := guard.RoundTrip(r)
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
	if _, ok := artifact.Refused(send("POST", "https://auth.example.com/token")); !ok || saw != "nothing" {
		t.Errorf("a POST to another host: saw %q", saw)
	}
	// Another host may not name a token server, the registry may.
	answer = &http.Response{StatusCode: 401, Body: http.NoBody, Header: http.Header{"Www-Authenticate": {`Bearer realm="https://auth.example.com/token",service="x"`}}}
	for _, c := range []struct{ asked, saw string }{{"https://content.example.com/", ""}, {"https://r.example.com/v2/", "Basic x"}} {
		if err := send("GET", c.asked); err != nil {
			t.Error(err)
		}
		if err := send("GET", "https://auth.example.com/token"); err != nil || saw != c.saw {
			t.Errorf("after %s asked: saw %q, %v", c.asked, saw, err)
		}
	}
}

// A registry whose answers are redirected, or whose token server leads on, is
// not a way to the credentials.
func TestHostileServersGetNoCredentials(t *testing.T) {
	const own, evil = "registry.example.com", "evil.example.net"
	registry, hostile := newRig(t), newRig(t)
	var told []string
	hostile.answer(func(w http.ResponseWriter, req *http.Request) bool {
		if a := req.Header.Get("Authorization"); a != "" && a != "Bearer theirs" { // the token that it gives out itself
			told = append(told, req.URL.Path+" "+a)
		}
		if req.URL.Path == "/token" {
			_, _ = w.Write([]byte(`{"token":"theirs"}`))
			return true
		}
		asks(w, `Bearer realm="https://`+evil+`/token",service="x"`)
		return true
	})
	token := `Bearer realm="https://` + own + `/token",service="x"`
	for name, hook := range map[string]func(w http.ResponseWriter, req *http.Request) bool{
		"everything leads there": func(http.ResponseWriter, *http.Request) bool { return false },
		"the token server leads there": func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != "/token" {
				asks(w, token)
			}
			return req.URL.Path != "/token"
		},
		"a manifest leads there, after a password": func(w http.ResponseWriter, req *http.Request) bool {
			if _, _, ok := req.BasicAuth(); !ok {
				asks(w, `Basic realm="fleet"`)
				return true
			}
			return req.URL.Path == "/v2/"
		},
		"a manifest leads there, after a token": func(w http.ResponseWriter, req *http.Request) bool {
			switch {
			case req.URL.Path == "/token":
				_, _ = w.Write([]byte(`{"token":"t0ken"}`))
			case req.Header.Get("Authorization") != "Bearer t0ken":
				asks(w, token)
			default:
				return false
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			told = nil
			registry.answer(func(w http.ResponseWriter, req *http.Request) bool {
				if !hook(w, req) {
					http.Redirect(w, req, "https://"+evil+req.URL.RequestURI(), http.StatusTemporaryRedirect)
				}
				return true
			})
			repo, err := NewClient(Options{}).Repository(Scheme+own+"/team/fleet", through(t, map[string]*rig{own: registry, evil: hostile}))
			if err != nil {
				t.Fatal(err)
			}
			defer repo.Close()
			asked := hostile.asked(func() { _, err = repo.Resolve(t.Context(), Ref{Tag: "main"}) })
			if err == nil || strings.Contains(err.Error(), password) {
				t.Errorf("it ended with %v", err)
			}
			if len(asked) == 0 {
				t.Error("the hostile server was not asked: this shows nothing")
			}
			if len(told) > 0 {
				t.Errorf("the hostile server was told %v", told)
			}
		})
	}
}

func asks(w http.ResponseWriter, challenge string) {
	w.Header().Set("WWW-Authenticate", challenge)
	w.WriteHeader(http.StatusUnauthorized)
}

// through gives access, with credentials, to servers by their names.
func through(t *testing.T, hosts map[string]*rig) Access {
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
	// What their certificates are for.
	return Access{Keychain: login{user, password}, Proxy: address, TLS: &tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS12}}
}
