package oci

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
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
	// registry and the keys of tokenServers are hosts with their ports.
	registry     string
	tokenServers sync.Map
}

// NewCredentialGuard returns a transport that sends credentials only to a registry, given
// as a host with or without a port, and to its token servers.
func NewCredentialGuard(next http.RoundTripper, registry string) http.RoundTripper {
	return &credentialGuard{next: next, registry: hostPort(&url.URL{Host: registry})}
}

var realmPattern = regexp.MustCompile(`(?i)realm="([^"]+)"`)

// RoundTrip implements http.RoundTripper.
func (g *credentialGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	host := hostPort(r.URL)
	if _, trusted := g.tokenServers.Load(host); !trusted && host != g.registry {
		// the body of a POST for a token contains credentials
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, &artifact.Error{Reason: artifact.RefusedAddress,
				Message: fmt.Sprintf("%.200s requests the credentials of another host", r.URL.Host)}
		}
		r = r.Clone(r.Context())
		r.Header.Del("Authorization")
	}
	resp, err := g.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusUnauthorized && host == g.registry {
		for _, challenge := range resp.Header.Values("WWW-Authenticate") {
			if m := realmPattern.FindStringSubmatch(challenge); m != nil {
				g.trustTokenServer(m[1])
			}
		}
	}
	return resp, err
}

func (g *credentialGuard) trustTokenServer(tokenURL string) {
	if u, err := url.Parse(tokenURL); err == nil && u.Host != "" {
		g.tokenServers.Store(hostPort(u), nil)
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
