package chart

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/ksctl/gitops/stacks/artifact"
)

// httpsOnly refuses plain HTTP, also after a redirect and for addresses that a registry returns.
type httpsOnly struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s httpsOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, &artifact.Error{Reason: artifact.RefusedAddress,
			Message: fmt.Sprintf("plain HTTP to %s is not allowed", r.URL.Host)}
	}
	return s.next.RoundTrip(r)
}

// CloseIdleConnections closes those of the next transport; http.Client calls it.
func (s httpsOnly) CloseIdleConnections() { closeIdle(s.next) }

func closeIdle(t http.RoundTripper) {
	if c, ok := t.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// credentialTransport adds credentials to requests to the listed hosts, and to no others.
type credentialTransport struct {
	next  http.RoundTripper
	hosts []string
	auth  authn.AuthConfig
}

// RoundTrip implements http.RoundTripper.
func (t *credentialTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	if slices.Contains(t.hosts, hostOf(r.URL)) {
		if t.auth.RegistryToken != "" {
			r.Header.Set("Authorization", "Bearer "+t.auth.RegistryToken)
		} else if t.auth.Username != "" {
			r.SetBasicAuth(t.auth.Username, t.auth.Password)
		}
	}
	return t.next.RoundTrip(r)
}

// CloseIdleConnections closes those of the next transport; http.Client calls it.
func (t *credentialTransport) CloseIdleConnections() { closeIdle(t.next) }

// hostOf returns the lower-case host and the port of an https URL.
func hostOf(u *url.URL) string {
	return strings.ToLower(u.Hostname()) + ":" + cmp.Or(u.Port(), "443")
}

// httpClient returns a client with the TLS settings, and without the credentials.
func (a *Access) httpClient() *http.Client {
	c := artifact.NewHTTPClientWith(artifact.ClientOptions{TLS: a.tls})
	if !a.repo.Insecure {
		c.Transport = httpsOnly{next: c.Transport}
	}
	return c
}

// fetchURL downloads at most limit bytes from a URL. notFound is true for the statuses 404 and 410.
// The error is an *Error; subject names the content in its message.
func fetchURL(ctx context.Context, client *http.Client, target, subject string, limit int64,
	accept ...string) (data []byte, notFound bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, false, terminalError(RepositoryInvalid, "the URL of %s is invalid", subject)
	}
	if len(accept) > 0 {
		req.Header.Set("Accept", strings.Join(accept, ", "))
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, false, requestError(ctx, err, subject)
	}
	defer func() { _ = resp.Body.Close() }()
	status := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return nil, true, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, false,
			transientError(AccessDenied, nil, "access to %s is denied: the repository answered %s; set the "+
				"credentials Secret of the repository in spec.charts of the install", subject, status)
	default:
		return nil, false, transientError(Unreachable, nil, "%s can't be read: the repository answered %s", subject,
			status)
	}
	data, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, false, requestError(ctx, err, subject)
	}
	if int64(len(data)) > limit {
		return nil, false, terminalError(RepositoryInvalid, "%s has more than the %d bytes allowed", subject, limit)
	}
	return data, false, nil
}
