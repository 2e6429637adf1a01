package oci

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ksctl/gitops/stacks/artifact"
)

// guard sends credentials to a registry, and to the token server that the
// registry itself names, and to no other host: content is often somewhere else.
// It stands below the library, which follows redirects before it looks at who
// asks for credentials.
type guard struct {
	next http.RoundTripper

	mu      sync.Mutex
	trusted []string
}

// NewGuard lets credentials through to a registry, a host with a port or without.
func NewGuard(next http.RoundTripper, registry string) http.RoundTripper {
	return &guard{next: next, trusted: []string{hostOf(&url.URL{Host: registry})}}
}

var realm = regexp.MustCompile(`(?i)realm="([^"]+)"`)

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if !g.trusts(r.URL) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead { // a POST for a token has them in its body
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, &artifact.Error{Reason: artifact.RefusedAddress, Message: fmt.Sprintf("%.200s asks for credentials of another host", r.URL.Host)}
		}
		r = r.Clone(r.Context())
		r.Header.Del("Authorization")
	}
	resp, err := g.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusUnauthorized && hostOf(r.URL) == g.trusted[0] {
		for _, challenge := range resp.Header.Values("WWW-Authenticate") {
			if m := realm.FindStringSubmatch(challenge); m != nil {
				g.trust(m[1])
			}
		}
	}
	return resp, err
}

func (g *guard) trusts(u *url.URL) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.trusted, hostOf(u))
}

func (g *guard) trust(tokens string) {
	u, err := url.Parse(tokens)
	if err != nil || u.Host == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if host := hostOf(u); !slices.Contains(g.trusted, host) {
		g.trusted = append(g.trusted, host)
	}
}

// CloseIdleConnections lets http.Client reach those of the transport.
func (g *guard) CloseIdleConnections() {
	if c, ok := g.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// hostOf is the host and port of a URL.
func hostOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}
