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

// credentialGuard removes credentials from requests to hosts other than the registry and
// the token servers that the registry itself names. Registries often serve content from
// other hosts. The guard wraps the transport below the registry library, because the
// library follows redirects before it checks which host requests credentials.
type credentialGuard struct {
	next http.RoundTripper

	mu           sync.Mutex
	trustedHosts []string
}

// NewCredentialGuard returns a transport that sends credentials only to a registry, given
// as a host with or without a port, and to its token servers.
func NewCredentialGuard(next http.RoundTripper, registry string) http.RoundTripper {
	return &credentialGuard{next: next, trustedHosts: []string{hostPort(&url.URL{Host: registry})}}
}

var realmPattern = regexp.MustCompile(`(?i)realm="([^"]+)"`)

// RoundTrip implements http.RoundTripper.
func (g *credentialGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	if !g.isTrusted(r.URL) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead { // the body of a POST for a token contains credentials
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, &artifact.Error{Reason: artifact.RefusedAddress, Message: fmt.Sprintf("%.200s requests the credentials of another host", r.URL.Host)}
		}
		r = r.Clone(r.Context())
		r.Header.Del("Authorization")
	}
	resp, err := g.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusUnauthorized && hostPort(r.URL) == g.trustedHosts[0] {
		for _, challenge := range resp.Header.Values("WWW-Authenticate") {
			if m := realmPattern.FindStringSubmatch(challenge); m != nil {
				g.trustTokenServer(m[1])
			}
		}
	}
	return resp, err
}

func (g *credentialGuard) isTrusted(u *url.URL) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.trustedHosts, hostPort(u))
}

func (g *credentialGuard) trustTokenServer(tokenURL string) {
	u, err := url.Parse(tokenURL)
	if err != nil || u.Host == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if host := hostPort(u); !slices.Contains(g.trustedHosts, host) {
		g.trustedHosts = append(g.trustedHosts, host)
	}
}

// CloseIdleConnections closes the idle connections of the transport. http.Client calls it.
func (g *credentialGuard) CloseIdleConnections() {
	if c, ok := g.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// hostPort returns the host and port of a URL; the port is 443 by default.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}
