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

// Programs of a server.
const (
	uploadPack  = "git-upload-pack"  // it reads a repository
	receivePack = "git-receive-pack" // it writes to it
)

const infoRefs = "/info/refs"

// wire talks to the server of one repository.
type wire interface {
	// list opens the server's list of branches and tags.
	list(ctx context.Context) (io.ReadCloser, error)
	// ask sends a request for objects and opens the answer.
	ask(ctx context.Context, request []byte) (io.ReadCloser, error)
}

// httpWire speaks smart HTTP.
type httpWire struct {
	http *http.Client
	// asked is where the repository is said to be, base where it was found.
	asked, base *url.URL
	// authorize adds the credentials; nil where there are none, or none for base.
	authorize func(*http.Request)
	// program of the server.
	program string
	// stays is true where no redirect to another host is followed.
	stays bool
	// own is true for a client that nobody else uses.
	own     bool
	masked  string
	secrets []string
}

func (c *Client) httpWire(u *url.URL, a *Access, program, masked string) (*httpWire, error) {
	w := &httpWire{http: c.http, asked: u, program: program, masked: masked, secrets: a.secrets(u)}
	login := u.User
	if a.Username != "" || a.Password != "" {
		login = url.UserPassword(a.Username, a.Password)
	}
	switch {
	case a.BearerToken != "" && (a.Username != "" || a.Password != ""):
		return nil, fail(CredentialsInvalid, "there is a bearerToken beside username and password: use one of them")
	case a.BearerToken != "":
		w.authorize = func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+a.BearerToken) }
	case login != nil:
		w.authorize = func(r *http.Request) {
			password, _ := login.Password()
			r.SetBasicAuth(login.Username(), password)
		}
	}
	config, err := a.TLS()
	if err != nil {
		return nil, err
	}
	if config != nil || a.Proxy != nil {
		w.own, w.http = true, artifact.NewHTTPClientWith(artifact.ClientOptions{TLS: config, Proxy: a.Proxy})
	}
	return w, nil
}

// list implements wire.
func (w *httpWire) list(ctx context.Context) (io.ReadCloser, error) {
	ask := w.asked.JoinPath(infoRefs)
	ask.User, ask.Fragment, ask.RawFragment = nil, "", ""
	ask.RawQuery = url.Values{"service": {w.program}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ask.String(), nil)
	if err != nil {
		return nil, failBy(URLInvalid, artifact.WithoutURL(err), "%s is not a URL to ask", w.masked)
	}
	client := w.http
	if w.stays {
		stay := *w.http
		stay.CheckRedirect = sameHost(w.http.CheckRedirect)
		client = &stay
	}
	got, err := w.do(ctx, client, req)
	if err != nil {
		return nil, err
	}
	if err := w.found(ask, got); err != nil {
		_ = got.Close()
		return nil, err
	}
	return got, nil
}

// sameHost lets redirects through that stay with a host, such as to the name that ends in .git.
func sameHost(next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(r *http.Request, via []*http.Request) error {
		from := via[len(via)-1].URL
		upgrade := from.Scheme == "http" && r.URL.Scheme == "https" && from.Hostname() == r.URL.Hostname()
		if !upgrade && (r.URL.Scheme != from.Scheme || r.URL.Host != from.Host) {
			return fail(OperationFailed, "%s redirects to another host, %s, where nothing is written: if that is right, name it in the URL", artifact.MaskURL(from.String()), quoted(r.URL.Host))
		}
		if next == nil {
			return nil
		}
		return next(r, via)
	}
}

// page is an answer of the status 200.
type page struct {
	io.ReadCloser
	at   *url.URL
	kind string
}

// do sends a request and judges the status of the answer.
func (w *httpWire) do(ctx context.Context, client *http.Client, req *http.Request) (*page, error) {
	if w.authorize != nil {
		w.authorize(req)
	}
	resp, err := client.Do(req) //nolint:bodyclose // the page closes it
	if said, ok := errors.AsType[*Error](err); ok {
		return nil, said
	}
	if err != nil {
		return nil, unreachable(ctx, err, w.masked)
	}
	got := &page{resp.Body, resp.Request.URL, resp.Header.Get("Content-Type")}
	if w.own {
		got.ReadCloser = lastBody{resp.Body, w.http}
	}
	if err := answered(resp.StatusCode, w.masked, w.authorize != nil); err != nil {
		_ = got.Close()
		return nil, err
	}
	return got, nil
}

// lastBody closes the connections of a client that nobody else uses.
type lastBody struct {
	io.ReadCloser
	client *http.Client
}

// Close implements io.Closer.
func (b lastBody) Close() error {
	defer b.client.CloseIdleConnections()
	return b.ReadCloser.Close()
}

// found takes over where a redirect led to. Credentials are not taken along to
// another host.
func (w *httpWire) found(asked *url.URL, got *page) error {
	at := got.at
	if !strings.HasSuffix(at.Path, infoRefs) {
		return fail(OperationFailed, "%s redirects to something that is not a repository", w.masked)
	}
	if want := "application/x-" + w.program + "-advertisement"; got.kind != want {
		return fail(OperationFailed, "%s does not serve a Git repository over smart HTTP (content type %s): check the URL", w.masked, saying(got.kind, w.secrets))
	}
	w.base = at.JoinPath("..", "..")
	w.base.User, w.base.RawQuery = nil, ""
	upgrade := asked.Scheme == "http" && at.Scheme == "https" && asked.Hostname() == at.Hostname()
	if !upgrade && (asked.Scheme != at.Scheme || asked.Host != at.Host) {
		w.authorize = nil
	}
	return nil
}

// ask implements wire. It comes after list.
func (w *httpWire) ask(ctx context.Context, request []byte) (io.ReadCloser, error) {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base.JoinPath(w.program).String(), bytes.NewReader(request))
	if err != nil {
		return nil, failBy(OperationFailed, artifact.WithoutURL(err), "asking %s", w.masked)
	}
	post.Header.Set("Content-Type", "application/x-"+w.program+"-request")
	post.Header.Set("Accept", "application/x-"+w.program+"-result")
	// Only the first request may be redirected, as with git itself.
	stay := *w.http
	stay.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	got, err := w.do(ctx, &stay, post)
	if err != nil {
		return nil, err
	}
	return got, nil
}
