package nodegroup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

func refresh(t *testing.T, c externalgrpc.CloudProviderClient) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.Refresh(ctx, &externalgrpc.RefreshRequest{})
	return err
}

func TestWhoIsNotLetIn(t *testing.T) {
	r := newRig(t, cluster(1, 0)).start()
	expired := client(pki.Identity(prod))
	expired.NotAfter = time.Now().Add(-time.Minute)
	server := x509.Certificate{URIs: []*url.URL{pki.Identity(prod)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, certificate := range map[string]*tls.Certificate{
		"without a certificate":        nil,
		"expired":                      r.authority.issue(t, expired),
		"of another authority":         newAuthority(t).issue(t, client(pki.Identity(prod))),
		"a server's":                   r.authority.issue(t, server),
		"without an identity":          r.authority.issue(t, client()),
		"with two":                     r.authority.issue(t, client(pki.Identity(prod), pki.Identity(other))),
		"of something else":            r.authority.issue(t, client(uri("ksctl://agent/team/prod"))),
		"of another system":            r.authority.issue(t, client(uri("spiffe://autoscaler/team/prod"))),
		"with a longer name":           r.authority.issue(t, client(uri("ksctl://autoscaler/team/prod/x"))),
		"with a shorter name":          r.authority.issue(t, client(uri("ksctl://autoscaler/team"))),
		"with an empty name":           r.authority.issue(t, client(uri("ksctl://autoscaler/team/"))),
		"with a question":              r.authority.issue(t, client(uri("ksctl://autoscaler/team/prod?x=1"))),
		"with a port":                  r.authority.issue(t, client(uri("ksctl://autoscaler:1/team/prod"))),
		"with a name that is escaped":  r.authority.issue(t, client(uri("ksctl://autoscaler/team/prod%2Fx"))),
		"with a name that is no name":  r.authority.issue(t, client(uri("ksctl://autoscaler/team/PROD"))),
		"one good, one bad identity":   r.authority.issue(t, client(pki.Identity(prod), uri("ksctl://autoscaler/x"))),
		"with a name of a person only": r.authority.issue(t, x509.Certificate{DNSNames: []string{"prod.team"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := refresh(t, r.dial(certificate)); status.Code(err) != codes.Unavailable {
				t.Errorf("%v", err)
			}
		})
	}
	if err := refresh(t, r.as(prod)); err != nil {
		t.Error(err)
	}
	if !r.clusters.LastAsked(other).IsZero() {
		t.Error("somebody got in")
	}
}

func TestAnOlderTLSIsRefused(t *testing.T) {
	r := newRig(t, cluster(1, 0)).start()
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: r.authority.pool(), ServerName: "localhost", MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{*r.authority.issue(t, client(pki.Identity(prod)))}}}).DialContext(t.Context(), "tcp", r.addr)
	if err == nil {
		_ = conn.Close()
		t.Error("TLS 1.2 is spoken")
	}
}

// The authority and the server's certificate may be others without a start.
func TestCertificatesAreReplacedWithoutAStart(t *testing.T) {
	r := newRig(t, cluster(1, 0)).start()
	before := r.authority
	if err := refresh(t, r.as(prod)); err != nil {
		t.Fatal(err)
	}
	r.authority = newAuthority(t)
	if err := refresh(t, r.as(prod)); err == nil {
		t.Error("a client of the next authority is let in")
	}
	r.clients.Store(r.authority.pool())
	r.served.Store(r.authority.server(t))
	if err := refresh(t, r.as(prod)); err != nil {
		t.Errorf("after the replacement: %v", err)
	}
	stale := before.issue(t, client(pki.Identity(prod)))
	if err := refresh(t, r.dial(stale)); err == nil {
		t.Error("a client of the authority before is let in")
	}
}

func TestNobodyIsLetInWithoutAnAuthority(t *testing.T) {
	for name, f := range map[string]func() (*x509.CertPool, error){
		"there is none":  func() (*x509.CertPool, error) { return nil, nil },
		"it is not read": func() (*x509.CertPool, error) { return nil, errors.New("no Secret") },
		"it is empty":    func() (*x509.CertPool, error) { return x509.NewCertPool(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cluster(1, 0))
			r.listener.ClientCAs = f
			// Without one, crypto/tls would believe the authorities of the system.
			if config, err := r.listener.tls().GetConfigForClient(nil); err == nil && config.ClientCAs == nil {
				t.Error("a connection has no authority of its own")
			}
			r.start()
			if err := refresh(t, r.as(prod)); status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
		})
	}
}

// A connection is kept; the certificate that it was made with may expire meanwhile.
func TestACertificateThatExpiresOnAConnection(t *testing.T) {
	r := newRig(t, cluster(1, 0)).start()
	certificate := r.authority.issue(t, client(pki.Identity(prod)))
	c := r.dial(certificate)
	if err := refresh(t, c); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(2 * time.Hour)
	refused(t, refresh(t, c), codes.Unauthenticated, "expired")
	refused(t, refresh(t, r.dial(certificate)), codes.Unavailable, "") // not even a connection
}
