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

// ClientOptions configures how an HTTP client reaches servers. The zero value trusts
// the system's certificate authorities and uses the proxy of the environment.
type ClientOptions struct {
	// TLS holds the certificate authorities to trust instead of the system's, and
	// the client certificate, if there are any.
	TLS *tls.Config
	// Proxy is used instead of the proxy of the environment.
	Proxy *url.URL
	// ResponseHeaderTimeout is how long a server may take to send response headers; 2 min
	// when zero.
	ResponseHeaderTimeout time.Duration
}

// NewHTTPClient returns a client for URLs that users chose. It follows at most
// maxRedirects redirects and never connects to a link-local address, where clouds
// serve the credentials of the machine. The address is checked when it is dialed, so
// that neither a redirect nor a DNS name that resolves to one circumvents the check.
//
// With a proxy, the proxy dials; then only IP addresses in a URL are checked.
func NewHTTPClient() *http.Client { return NewHTTPClientWith(ClientOptions{}) }

// NewHTTPClientWith is NewHTTPClient with the given certificate authorities, proxy
// and timeout.
func NewHTTPClientWith(o ClientOptions) *http.Client {
	dialer := NewDialer()
	proxy := http.ProxyFromEnvironment
	if o.Proxy != nil {
		proxy = http.ProxyURL(o.Proxy)
	}
	return &http.Client{
		Transport: addressGuard{next: &http.Transport{
			Proxy:                 proxy,
			DialContext:           dialer.DialContext,
			TLSClientConfig:       o.TLS.Clone(),
			ForceAttemptHTTP2:     true,
			MaxIdleConns:          64,
			MaxIdleConnsPerHost:   4,
			IdleConnTimeout:       90 * time.Second,
			TLSHandshakeTimeout:   connectTimeout,
			ResponseHeaderTimeout: cmp.Or(o.ResponseHeaderTimeout, responseHeaderTimeout),
			OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
				if resp.StatusCode != http.StatusOK {
					return &ProxyError{Status: resp.StatusCode}
				}
				return nil
			},
		}},
		CheckRedirect: checkRedirect,
	}
}

// NewDialer returns a dialer for addresses that users chose. It refuses the same
// addresses as the client of NewHTTPClient.
func NewDialer() *net.Dialer {
	return &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second, ControlContext: checkDialAddress}
}

// ProxyError reports a proxy that refused to connect to a server.
type ProxyError struct {
	// Status is the HTTP status code of the proxy's response.
	Status int
}

// Error implements error.
func (e *ProxyError) Error() string {
	return fmt.Sprintf("the proxy responded with %d %s", e.Status, http.StatusText(e.Status))
}

// addressGuard checks the host of every request, including redirected ones.
type addressGuard struct {
	next *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (g addressGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := checkHost(r.URL.Hostname()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// CloseIdleConnections closes the idle connections of the transport. http.Client calls it.
func (g addressGuard) CloseIdleConnections() { g.next.CloseIdleConnections() }

func checkRedirect(r *http.Request, via []*http.Request) error {
	if r.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https" {
		// Credentials and the content of a private repository would be sent unencrypted.
		return newError(RefusedAddress, "", "refusing a redirect from https to %s", truncate(r.URL.Scheme, 16))
	}
	if len(via) > maxRedirects {
		return newError(RefusedAddress, "", "more than %d redirects", maxRedirects)
	}
	return nil
}

// CheckHost returns an error if the client refuses to connect to a host:port. It is for
// callers that let a proxy dial.
func CheckHost(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return newError(RefusedAddress, "", "invalid address %q: expected host:port", address)
	}
	return checkHost(host)
}

// checkHost refuses the addresses that checkAddress refuses, and no names.
func checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return checkAddress(addr)
	}
	return nil
}

func checkDialAddress(_ context.Context, _, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return newError(RefusedAddress, "", "invalid address %q: expected IP:port", address)
	}
	return checkAddress(addr.Addr())
}

// checkAddress refuses link-local and multicast addresses.
func checkAddress(a netip.Addr) error {
	if plain := a.Unmap().WithZone(""); plain.IsLinkLocalUnicast() || plain.IsMulticast() {
		return newError(RefusedAddress, "", "%s is a link-local or multicast address", a)
	}
	return nil
}

// AsRefusedAddress returns the *Error in err, and true if the client refused to connect to an
// address.
func AsRefusedAddress(err error) (*Error, bool) {
	e, ok := errors.AsType[*Error](err)
	return e, ok && e.Reason == RefusedAddress
}
