package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Programs of a Git server.
const (
	uploadPack  = "git-upload-pack"  // reads a repository
	receivePack = "git-receive-pack" // writes to a repository
)

const infoRefs = "/info/refs"

// transport sends requests to a program of the server of one repository.
type transport interface {
	// openRefs requests the list of branches and tags. The caller must close the response.
	openRefs(ctx context.Context) (io.ReadCloser, error)
	// send sends a fetch or push request. The caller must close the response.
	send(ctx context.Context, request []byte) (io.ReadCloser, error)
}

// httpTransport implements the smart HTTP protocol.
type httpTransport struct {
	http *http.Client
	// configuredURL is the given URL of the repository; baseURL is the URL after redirects.
	configuredURL, baseURL *url.URL
	// authorize adds the credentials; nil if there are none, or none for baseURL.
	authorize func(*http.Request)
	// program of the server.
	program string
	// sameHostOnly is true if redirects to other hosts are refused.
	sameHostOnly bool
	// ownClient is true if the HTTP client is used only by this transport.
	ownClient bool
	endpoint
}

func (c *Client) newHTTPTransport(u *url.URL, a *Access, program string, e endpoint) (*httpTransport, error) {
	w := &httpTransport{http: c.http, configuredURL: u, program: program, endpoint: e}
	login, hasLogin := u.User, a.Username+a.Password != ""
	if hasLogin {
		login = url.UserPassword(a.Username, a.Password)
	}
	switch {
	case a.BearerToken != "" && hasLogin:
		return nil, newError(CredentialsInvalid,
			"there are both a bearerToken and a username or password: use one of them")
	case a.BearerToken != "":
		w.authorize = func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+a.BearerToken) }
	case login != nil:
		w.authorize = func(r *http.Request) {
			password, _ := login.Password()
			r.SetBasicAuth(login.Username(), password)
		}
	}
	config, err := a.TLSConfig()
	if err != nil {
		return nil, err
	}
	if config != nil || a.Proxy != nil {
		w.ownClient, w.http = true, artifact.NewHTTPClientWith(artifact.ClientOptions{TLS: config, Proxy: a.Proxy})
	}
	return w, nil
}

// openRefs implements transport.
func (w *httpTransport) openRefs(ctx context.Context) (io.ReadCloser, error) {
	refsURL := w.configuredURL.JoinPath(infoRefs)
	refsURL.User, refsURL.Fragment, refsURL.RawFragment = nil, "", ""
	refsURL.RawQuery = url.Values{"service": {w.program}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, refsURL.String(), nil)
	if err != nil {
		return nil, wrapError(URLInvalid, artifact.WithoutURL(err), "%s is not a valid repository URL", w.maskedURL)
	}
	client := w.http
	if w.sameHostOnly {
		restricted := *w.http
		restricted.CheckRedirect = sameHostRedirects(w.http.CheckRedirect)
		client = &restricted
	}
	resp, err := w.do(ctx, client, req)
	if err != nil {
		return nil, err
	}
	if err := w.setBaseURL(refsURL, resp); err != nil {
		_ = resp.Close()
		return nil, err
	}
	return resp, nil
}

// sameHostRedirects allows only redirects within a host, such as to the same path with the
// suffix .git, and from http to https.
func sameHostRedirects(next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(r *http.Request, via []*http.Request) error {
		from := via[len(via)-1].URL
		if !isSameHost(from, r.URL) {
			return newError(OperationFailed, "%s redirects to another host, %s, which is not allowed for a push: if "+
				"the host is correct, use it in the URL", artifact.MaskURL(from.String()), quoteName(r.URL.Host))
		}
		return next(r, via)
	}
}

// response is a response with the status code 200.
type response struct {
	io.ReadCloser
	url         *url.URL
	contentType string
}

// do sends a request and checks the status code of the response.
func (w *httpTransport) do(ctx context.Context, client *http.Client, req *http.Request) (*response, error) {
	if w.authorize != nil {
		w.authorize(req)
	}
	resp, err := client.Do(req) //nolint:bodyclose // the response type closes the body
	if gitErr, ok := errors.AsType[*Error](err); ok {
		return nil, gitErr
	}
	if err != nil {
		return nil, w.connectionError(ctx, err)
	}
	got := &response{resp.Body, resp.Request.URL, resp.Header.Get("Content-Type")}
	if w.ownClient {
		got.ReadCloser = clientClosingBody{resp.Body, w.http}
	}
	if err := w.statusError(resp.StatusCode); err != nil {
		_ = got.Close()
		return nil, err
	}
	return got, nil
}

// clientClosingBody is a response body that also closes the idle connections of its HTTP
// client, for clients that only one transport uses.
type clientClosingBody struct {
	io.ReadCloser
	client *http.Client
}

// Close implements io.Closer.
func (b clientClosingBody) Close() error {
	defer b.client.CloseIdleConnections()
	return b.ReadCloser.Close()
}

// setBaseURL sets the base URL to the target of redirects. It drops the credentials if that
// is another host.
func (w *httpTransport) setBaseURL(requested *url.URL, resp *response) error {
	at := resp.url
	if !strings.HasSuffix(at.Path, infoRefs) {
		return newError(OperationFailed, "%s redirects to a URL that is not a repository", w.maskedURL)
	}
	if want := "application/x-" + w.program + "-advertisement"; resp.contentType != want {
		return newError(OperationFailed,
			"%s does not serve a Git repository over smart HTTP (content type %s): check the URL", w.maskedURL,
			w.quoteServerText(resp.contentType))
	}
	w.baseURL = at.JoinPath("..", "..")
	w.baseURL.User, w.baseURL.RawQuery = nil, ""
	if !isSameHost(requested, at) {
		w.authorize = nil
	}
	return nil
}

// isSameHost is true if a redirect stays on its host, or only changes from http to https.
func isSameHost(from, to *url.URL) bool {
	if from.Scheme == "http" && to.Scheme == "https" {
		return from.Hostname() == to.Hostname()
	}
	return from.Scheme == to.Scheme && from.Host == to.Host
}

// statusError returns the error of an HTTP status code, and nil for 200.
func (w *httpTransport) statusError(code int) error {
	switch code {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		if w.authorize == nil {
			return newError(AuthenticationRequired,
				"%s requires credentials: the repository is private or does not exist", w.maskedURL)
		}
		return newError(AuthenticationFailed, "%s rejects the credentials", w.maskedURL)
	case http.StatusForbidden:
		return newError(AuthenticationFailed, "%s refuses access (403 Forbidden)", w.maskedURL)
	case http.StatusProxyAuthRequired:
		return newError(ProxyFailed, "the proxy for %s requires credentials, or rejects the given ones (407)",
			w.maskedURL)
	case http.StatusNotFound, http.StatusGone:
		return newError(RepositoryNotFound, "there is no repository at %s: check the URL, or create the repository",
			w.maskedURL)
	}
	return newError(OperationFailed, "%s responded with %d %s", w.maskedURL, code, http.StatusText(code))
}

// send implements transport. It must be called after openRefs.
func (w *httpTransport) send(ctx context.Context, request []byte) (io.ReadCloser, error) {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, w.baseURL.JoinPath(w.program).String(),
		bytes.NewReader(request))
	if err != nil {
		return nil, wrapError(OperationFailed, artifact.WithoutURL(err), "creating a request to %s", w.maskedURL)
	}
	post.Header.Set("Content-Type", "application/x-"+w.program+"-request")
	post.Header.Set("Accept", "application/x-"+w.program+"-result")
	// As in git itself, only the request for the list of refs may be redirected.
	noRedirects := *w.http
	noRedirects.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := w.do(ctx, &noRedirects, post)
	if err != nil {
		return nil, err
	}
	return resp, nil
}
