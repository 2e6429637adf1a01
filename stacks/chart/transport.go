package chart

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/ksctl/gitops/stacks/artifact"
)

// secure refuses plain HTTP, wherever a redirect or a registry leads to.
type secure struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s secure) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, &artifact.Error{Reason: artifact.RefusedAddress, Message: fmt.Sprintf("%s is asked for in plain HTTP", r.URL.Host)}
	}
	return s.next.RoundTrip(r)
}

// CloseIdleConnections lets http.Client reach those of the transport.
func (s secure) CloseIdleConnections() { closeIdle(s.next) }

func closeIdle(t http.RoundTripper) {
	if c, ok := t.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// authorised sends credentials to some hosts and to no other.
type authorised struct {
	next  http.RoundTripper
	hosts []string
	auth  authn.AuthConfig
}

// RoundTrip implements http.RoundTripper.
func (t *authorised) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	for _, host := range t.hosts {
		if host != hostOf(r.URL) {
			continue
		}
		if t.auth.RegistryToken != "" {
			r.Header.Set("Authorization", "Bearer "+t.auth.RegistryToken)
		} else if t.auth.Username != "" {
			r.SetBasicAuth(t.auth.Username, t.auth.Password)
		}
	}
	return t.next.RoundTrip(r)
}

// CloseIdleConnections lets http.Client reach those of the transport.
func (t *authorised) CloseIdleConnections() { closeIdle(t.next) }

// hostOf is the host and port of an https URL.
func hostOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}

// client is one without credentials.
func (a *Access) client() *http.Client {
	c := artifact.NewHTTPClientWith(artifact.ClientOptions{TLS: a.tls})
	if !a.repo.Insecure {
		c.Transport = secure{next: c.Transport}
	}
	return c
}

// read gets what a URL serves, of at most limit bytes. gone is true when there is nothing.
func read(ctx context.Context, client *http.Client, target, what string, limit int64, accept ...string) (data []byte, gone bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, false, fail(RepositoryInvalid, "the address of %s can't be read", what)
	}
	if len(accept) > 0 {
		req.Header.Set("Accept", strings.Join(accept, ", "))
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, false, unreached(ctx, err, what)
	}
	defer func() { _ = resp.Body.Close() }()
	status := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return nil, true, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, false, retry(AccessDenied, nil, "%s is refused: the repository answered %s; credentials are taken from the Secret that spec.charts of the install names for the repository", what, status)
	default:
		return nil, false, retry(Unreachable, nil, "%s can't be read: the repository answered %s", what, status)
	}
	data, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, false, unreached(ctx, err, what)
	}
	if int64(len(data)) > limit {
		return nil, false, fail(RepositoryInvalid, "%s has more than the %d bytes allowed", what, limit)
	}
	return data, false, nil
}
