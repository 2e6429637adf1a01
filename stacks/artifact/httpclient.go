package artifact

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

const (
	maxRedirects          = 5
	connectTimeout        = 15 * time.Second
	responseHeaderTimeout = 2 * time.Minute
)

// ClientOptions say how a client reaches servers. The zero value trusts what
// the system trusts, and takes the proxy of the environment.
type ClientOptions struct {
	// TLS holds the certificate authorities to trust instead of the system's, and
	// the certificate to show, where there are any.
	TLS *tls.Config
	// Proxy to go through, instead of the environment's.
	Proxy *url.URL
	// AnswerWithin is how long a server may take to begin an answer; 2 min when zero.
	AnswerWithin time.Duration
}

// NewHTTPClient makes a client for URLs that others chose: it follows few
// redirects and never talks to a link-local address, where clouds serve the
// credentials of the machine. The address is checked when it is dialled, so
// that neither a redirect nor a name that resolves to one gets around it.
//
// Behind a proxy it is the proxy that dials; there only addresses that stand in
// a URL are checked.
func NewHTTPClient() *http.Client { return NewHTTPClientWith(ClientOptions{}) }

// NewHTTPClientWith is NewHTTPClient with a certificate authority or a proxy
// of its own.
func NewHTTPClientWith(o ClientOptions) *http.Client {
	dialer := NewDialer()
	proxy := http.ProxyFromEnvironment
	if o.Proxy != nil {
		proxy = http.ProxyURL(o.Proxy)
	}
	return &http.Client{
		Transport: guard{next: &http.Transport{
			Proxy:                 proxy,
			DialContext:           dialer.DialContext,
			TLSClientConfig:       o.TLS.Clone(),
			ForceAttemptHTTP2:     true,
			MaxIdleConns:          64,
			MaxIdleConnsPerHost:   4,
			IdleConnTimeout:       90 * time.Second,
			TLSHandshakeTimeout:   connectTimeout,
			ResponseHeaderTimeout: cmp.Or(o.AnswerWithin, responseHeaderTimeout),
			OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
				if resp.StatusCode != http.StatusOK {
					return &ProxyError{Status: resp.StatusCode}
				}
				return nil
			},
		}},
		CheckRedirect: limitRedirects,
	}
}

// NewDialer makes a dialer for addresses that others chose, which refuses the
// same ones as the client.
func NewDialer() *net.Dialer {
	return &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second, ControlContext: refuseLinkLocal}
}

// ProxyError is a proxy that does not let through.
type ProxyError struct {
	// Status that it answers.
	Status int
}

// Error says what the proxy answers.
func (e *ProxyError) Error() string {
	return fmt.Sprintf("the proxy answers %d %s", e.Status, http.StatusText(e.Status))
}

// guard looks at the host of every request, redirected ones too.
type guard struct {
	next *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if addr, err := netip.ParseAddr(r.URL.Hostname()); err == nil && forbidden(addr) {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, refusal(addr)
	}
	return g.next.RoundTrip(r)
}

// CloseIdleConnections lets http.Client reach those of the transport.
func (g guard) CloseIdleConnections() { g.next.CloseIdleConnections() }

func limitRedirects(r *http.Request, via []*http.Request) error {
	if r.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https" {
		// Credentials, and the content of a private repository, would go in the clear.
		return fail(RefusedAddress, "", "a redirect from https to %s", clip(r.URL.Scheme, 16))
	}
	if len(via) > maxRedirects {
		return fail(RefusedAddress, "", "more than %d redirects", maxRedirects)
	}
	return nil
}

// RefuseHost says why a host:port is not talked to, for who lets another dial.
func RefuseHost(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fail(RefusedAddress, "", "can't tell what address %q is", address)
	}
	if addr, err := netip.ParseAddr(host); err == nil && forbidden(addr) {
		return refusal(addr)
	}
	return nil
}

func refuseLinkLocal(_ context.Context, _, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fail(RefusedAddress, "", "can't tell what address %q is", address)
	}
	if forbidden(addr.Addr()) {
		return refusal(addr.Addr())
	}
	return nil
}

func forbidden(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsLinkLocalUnicast() || a.IsMulticast()
}

func refusal(a netip.Addr) *Error {
	return fail(RefusedAddress, "", "%s is a link-local or multicast address", a)
}

// Refused gives the reason why the client would not talk to an address, if
// that is what err is about.
func Refused(err error) (*Error, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != RefusedAddress {
		return nil, false
	}
	return e, true
}
