package codec

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/sops"
)

// httpClient returns the HTTP client for the requests of one file. It trusts roots; if they are
// nil, those of the options; and if these are nil, the roots of the system.
func (o options) httpClient(roots *x509.CertPool) *http.Client {
	dial := o.dial
	if dial == nil {
		dial = newDialer().DialContext
	}
	return &http.Client{
		Timeout: o.requestTimeout,
		Transport: &http.Transport{
			DialContext:            dial,
			TLSClientConfig:        &tls.Config{RootCAs: cmp.Or(roots, o.roots), MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives:      true,
		},
		// Redirects are not followed, because their addresses were not checked.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// newDialer returns a dialer that checks each IP address before it connects, after name resolution.
func newDialer() *net.Dialer {
	d := artifact.NewDialer()
	d.Timeout = 10 * time.Second
	linkLocal := d.ControlContext
	d.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if linkLocal(ctx, network, address, c) != nil {
			return newError(sops.AddressRefused, "the address is link-local or multicast")
		}
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return newError(sops.AddressRefused, "the address is invalid")
		}
		return checkIP(addr.Addr())
	}
	return d
}

// metadataAddresses serve the credentials of a machine and are not link-local: AWS over IPv6,
// Alibaba Cloud, Azure.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
}

// nat64Prefix is the prefix of addresses with an IPv4 address in their last four bytes.
var nat64Prefix = netip.MustParsePrefix("64:ff9b::/96")

// checkIP returns an error if requests to an IP address are not allowed.
func checkIP(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if nat64Prefix.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case a.IsLinkLocalUnicast() || a.IsMulticast():
		return newError(sops.AddressRefused, "the address %s is link-local or multicast", a)
	case a.IsLoopback() || a.IsUnspecified():
		return newError(sops.AddressRefused, "the address %s is this machine", a)
	}
	if slices.Contains(metadataAddresses, a) {
		return newError(sops.AddressRefused,
			"the address %s is that of a metadata service, with credentials of a machine", a)
	}
	return nil
}

// parseURL parses a URL from a file or a Secret. It returns an error if requests to it are not
// allowed.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		return nil, newError(sops.AddressRefused, "the address is not a valid URL")
	}
	switch {
	case u.Scheme != "https":
		return nil, newError(sops.AddressRefused, "the address does not start with https://")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, newError(sops.AddressRefused, "the address has more than a host and a path")
	case strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), "localhost"):
		return nil, newError(sops.AddressRefused, "the address is this machine")
	}
	// IP addresses are checked here, too, because behind a proxy the dialer does not see them.
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := checkIP(addr); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// singleHost refuses requests to any other host.
type singleHost struct {
	next http.RoundTripper
	host string
}

// RoundTrip implements http.RoundTripper.
func (o singleHost) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != o.host {
		return nil, newError(sops.AddressRefused, "the request goes to another host than that of the key")
	}
	return o.next.RoundTrip(r)
}
