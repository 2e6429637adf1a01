package codec

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/sops"
)

// client makes the requests for one file. It trusts roots, the system's if they are nil.
func (o Options) client(roots *x509.CertPool) *http.Client {
	if roots == nil {
		roots = o.RootCAs
	}
	dial := o.dial
	if dial == nil {
		dial = o.dialer().DialContext
	}
	return &http.Client{
		Timeout: o.Limits.RequestTimeout,
		Transport: &http.Transport{
			DialContext:            dial,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives:      true,
		},
		// What a server redirects to was not looked at.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dialer looks at each address before it is talked to, whatever name led there.
func (o Options) dialer() *net.Dialer {
	d := artifact.NewDialer()
	d.Timeout = 10 * time.Second
	linkLocal := d.ControlContext
	d.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if linkLocal(ctx, network, address, c) != nil {
			return fail(sops.AddressRefused, "its address is link-local or multicast")
		}
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return fail(sops.AddressRefused, "its address is none")
		}
		return o.refuse(addr.Addr())
	}
	return d
}

// machineAddresses serve the credentials of a machine and are not link-local: AWS
// over IPv6, Alibaba Cloud, Azure.
var machineAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
}

// translated addresses hold one of IPv4 in their last four bytes.
var translated = netip.MustParsePrefix("64:ff9b::/96")

// refuse says why an address is not talked to.
func (o Options) refuse(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if translated.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case a.IsLinkLocalUnicast() || a.IsMulticast():
		return fail(sops.AddressRefused, "its address %s is link-local or multicast", a)
	case !o.AllowLoopback && (a.IsLoopback() || a.IsUnspecified()):
		return fail(sops.AddressRefused, "its address %s is this machine", a)
	}
	for _, m := range machineAddresses {
		if a == m {
			return fail(sops.AddressRefused, "at its address %s clouds serve the credentials of a machine", a)
		}
	}
	return nil
}

// address checks a URL that a file or a Secret names.
func (o Options) address(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		return fail(sops.AddressRefused, "its address is no URL")
	}
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !o.AllowHTTP):
		return fail(sops.AddressRefused, "its address does not begin with https://")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fail(sops.AddressRefused, "its address has more than a host and a path")
	case strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), "localhost") && !o.AllowLoopback:
		return fail(sops.AddressRefused, "its address is this machine")
	}
	// Behind a proxy nobody else would look.
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := o.refuse(addr); err != nil {
			return err
		}
	}
	return nil
}

// oneHost lets requests through that go to one host.
type oneHost struct {
	next http.RoundTripper
	host string
}

// RoundTrip implements http.RoundTripper.
func (o oneHost) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != o.host {
		return nil, fail(sops.AddressRefused, "it leads to another host")
	}
	return o.next.RoundTrip(r)
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
