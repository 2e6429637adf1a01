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

func TestInvalidClientCertificatesAreRejected(t *testing.T) {
	r := newServerTest(t, newCluster(1, 0)).start()
	expired := clientTemplate(pki.ClientURI(prod))
	expired.NotAfter = time.Now().Add(-time.Minute)
	server := x509.Certificate{URIs: []*url.URL{pki.ClientURI(prod)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, certificate := range map[string]*tls.Certificate{
		"no certificate":      nil,
		"expired":             r.authority.issue(t, expired),
		"another authority":   newAuthority(t).issue(t, clientTemplate(pki.ClientURI(prod))),
		"server certificate":  r.authority.issue(t, server),
		"no URI":              r.authority.issue(t, clientTemplate()),
		"two URIs":            r.authority.issue(t, clientTemplate(pki.ClientURI(prod), pki.ClientURI(other))),
		"another host":        r.authority.issue(t, clientTemplate(uri("ksctl://agent/team/prod"))),
		"another scheme":      r.authority.issue(t, clientTemplate(uri("spiffe://autoscaler/team/prod"))),
		"three path elements": r.authority.issue(t, clientTemplate(uri("ksctl://autoscaler/team/prod/x"))),
		"no name":             r.authority.issue(t, clientTemplate(uri("ksctl://autoscaler/team"))),
		"empty name":          r.authority.issue(t, clientTemplate(uri("ksctl://autoscaler/team/"))),
		"query":               r.authority.issue(t, clientTemplate(uri("ksctl://autoscaler/team/prod?x=1"))),
		"port":                r.authority.issue(t, clientTemplate(uri("ksctl://autoscaler:1/team/prod"))),
		"escaped slash":       r.authority.issue(t, clientTemplate(uri("ksctl://autoscaler/team/prod%2Fx"))),
		"invalid name":        r.authority.issue(t, clientTemplate(uri("ksctl://autoscaler/team/PROD"))),
		"one valid, one invalid URI": r.authority.issue(t,
			clientTemplate(pki.ClientURI(prod), uri("ksctl://autoscaler/x"))),
		"DNS name instead of a URI": r.authority.issue(t,
			x509.Certificate{DNSNames: []string{"prod.team"},
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := refresh(t, r.dial(certificate)); status.Code(err) != codes.Unavailable {
				t.Errorf("%v", err)
			}
		})
	}
	if err := refresh(t, r.connectAs(prod)); err != nil {
		t.Error(err)
	}
	if !r.clusters.LastRequest(other).IsZero() {
		t.Error("a request was recorded for another cluster")
	}
}

func TestTLS12IsRejected(t *testing.T) {
	r := newServerTest(t, newCluster(1, 0)).start()
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: r.authority.pool(), ServerName: "localhost",
		MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{*r.authority.issue(t, clientTemplate(pki.ClientURI(prod)))}}}).DialContext(
		t.Context(), "tcp", r.addr)
	if err == nil {
		_ = conn.Close()
		t.Error("a connection with TLS 1.2 was accepted")
	}
}

// A renewed authority and a renewed server certificate are used without a restart.
func TestRenewedCertificatesAreUsedWithoutRestart(t *testing.T) {
	r := newServerTest(t, newCluster(1, 0)).start()
	before := r.authority
	if err := refresh(t, r.connectAs(prod)); err != nil {
		t.Fatal(err)
	}
	r.authority = newAuthority(t)
	if err := refresh(t, r.connectAs(prod)); err == nil {
		t.Error("a client of the next authority is accepted before the replacement")
	}
	r.clients.Store(r.authority.pool())
	r.served.Store(r.authority.server(t))
	if err := refresh(t, r.connectAs(prod)); err != nil {
		t.Errorf("after the replacement: %v", err)
	}
	stale := before.issue(t, clientTemplate(pki.ClientURI(prod)))
	if err := refresh(t, r.dial(stale)); err == nil {
		t.Error("a client of the previous authority is accepted after the replacement")
	}
}

func TestClientsAreRejectedWithoutAnAuthority(t *testing.T) {
	for name, f := range map[string]func() (*x509.CertPool, error){
		"nil pool":   func() (*x509.CertPool, error) { return nil, nil },
		"error":      func() (*x509.CertPool, error) { return nil, errors.New("no Secret") },
		"empty pool": func() (*x509.CertPool, error) { return x509.NewCertPool(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newServerTest(t, newCluster(1, 0))
			r.listener.ClientCAs = f
			// Without a pool, crypto/tls would trust the system's authorities.
			if config, err := r.listener.tls().GetConfigForClient(nil); err == nil && config.ClientCAs == nil {
				t.Error("the TLS config has no pool of client authorities")
			}
			r.start()
			if err := refresh(t, r.connectAs(prod)); status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
		})
	}
}

// A connection may outlive the certificate with which it was established.
func TestExpiredCertificateIsRejectedOnOpenConnection(t *testing.T) {
	r := newServerTest(t, newCluster(1, 0)).start()
	certificate := r.authority.issue(t, clientTemplate(pki.ClientURI(prod)))
	c := r.dial(certificate)
	if err := refresh(t, c); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(2 * time.Hour)
	expectStatus(t, refresh(t, c), codes.Unauthenticated, "expired")
	expectStatus(t, refresh(t, r.dial(certificate)), codes.Unavailable, "") // a new connection fails
}
