package pki_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/internal/scaling/pki"
)

const day = 24 * time.Hour

var (
	start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	prod  = types.NamespacedName{Namespace: "team", Name: "prod.eu"}
)

func newAuthority(t testing.TB, now time.Time) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t testing.TB, a *pki.Authority, s pki.Subject, now time.Time) *pki.KeyPair {
	t.Helper()
	p, err := a.Issue(s, now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rotate(t testing.TB, a *pki.Authority, now time.Time) *pki.Authority {
	t.Helper()
	next, err := a.Rotate(now)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// handshake connects a client to a server, each with the trust bundle of an authority, and returns
// the client that the server identified.
func handshake(t *testing.T, server, client *pki.KeyPair, serverTrusts, clientTrusts *pki.Authority, host string,
	now time.Time) (types.NamespacedName, error) {
	t.Helper()
	at := func() time.Time { return now }
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{server.TLS()},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: serverTrusts.Pool(), Time: at})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	type answer struct {
		key types.NamespacedName
		err error
	}
	served := make(chan answer, 1)
	go func() {
		var a answer
		defer func() { served <- a }()
		conn, err := l.Accept()
		if err != nil {
			a.err = err
			return
		}
		defer func() { _ = conn.Close() }()
		s := conn.(*tls.Conn)
		if a.err = s.Handshake(); a.err == nil {
			a.key, a.err = pki.ClientOf(s.ConnectionState().PeerCertificates[0])
		}
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{client.TLS()},
		RootCAs:      clientTrusts.Pool(), ServerName: host, Time: at})
	if err == nil {
		defer func() { _ = c.Close() }()
	}
	a := <-served
	return a.key, errors.Join(err, a.err)
}

func TestPeersAcceptCurrentAndPreviousAuthority(t *testing.T) {
	first := newAuthority(t, start)
	later := start.Add(240 * day)
	second := rotate(t, first, later)
	third := rotate(t, second, later.Add(day))
	other := newAuthority(t, later)
	server, client := pki.ServerSubject("groups.ksctl.svc", "10.0.0.7"), pki.ClientSubject(prod)
	for name, c := range map[string]struct {
		server, client             *pki.Authority
		serverTrusts, clientTrusts *pki.Authority
		host                       string
		after                      time.Duration
		fails                      bool
	}{
		"one authority": {server: first, client: first, serverTrusts: first, clientTrusts: first},
		"server reached by IP address": {server: first, client: first, serverTrusts: first, clientTrusts: first,
			host: "10.0.0.7"},
		"another host": {server: first, client: first, serverTrusts: first, clientTrusts: first,
			host: "groups.other.svc", fails: true},
		"client from before the rotation": {server: second, client: first, serverTrusts: second,
			clientTrusts: second},
		"client unaware of the rotation": {server: second, client: first, serverTrusts: second,
			clientTrusts: first},
		"server unaware of the rotation": {server: first, client: second, serverTrusts: first,
			clientTrusts: second},
		"two rotations": {server: third, client: first, serverTrusts: third, clientTrusts: first,
			fails: true},
		"client of another authority": {server: first, client: other, serverTrusts: first, clientTrusts: first,
			fails: true},
		"server of another authority": {server: other, client: first, serverTrusts: first, clientTrusts: first,
			fails: true},
		"clock behind within the skew": {server: first, client: first, serverTrusts: first, clientTrusts: first,
			after: -4 * time.Minute},
		"clock behind by more than the skew": {server: first, client: first, serverTrusts: first, clientTrusts: first,
			after: -time.Hour, fails: true},
		"last day": {server: first, client: first, serverTrusts: first, clientTrusts: first,
			after: 29 * day},
		"expired certificate": {server: first, client: first, serverTrusts: first, clientTrusts: first,
			after: 31 * day, fails: true},
		"expired certificate, after rotation": {server: second, client: first, serverTrusts: second,
			clientTrusts: second, after: 31 * day, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			host := "groups.ksctl.svc"
			if c.host != "" {
				host = c.host
			}
			now := later.Add(c.after)
			key, err := handshake(t, issue(t, c.server, server, later), issue(t, c.client, client, later),
				c.serverTrusts, c.clientTrusts, host, now)
			if c.fails != (err != nil) || err == nil && key != prod {
				t.Errorf("got %s, %v", key, err)
			}
		})
	}
}

func TestServerAndClientCertificatesAreNotInterchangeable(t *testing.T) {
	a := newAuthority(t, start)
	server, client := issue(t, a, pki.ServerSubject("groups"), start), issue(t, a, pki.ClientSubject(prod), start)
	for name, pair := range map[string][2]*pki.KeyPair{"server certificate as client": {server, server},
		"client certificate as server": {client, client}} {
		if _, err := handshake(t, pair[0], pair[1], a, a, "groups", start); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestRenewalDue(t *testing.T) {
	a := newAuthority(t, start)
	server, client := pki.ServerSubject("b", "10.0.0.7", "a", "fd00::7"), pki.ClientSubject(prod)
	s, c := issue(t, a, server, start), issue(t, a, client, start)
	for name, x := range map[string]struct {
		by   *pki.Authority
		pair *pki.KeyPair
		of   pki.Subject
		now  time.Time
		due  bool
	}{
		"new client": {a, c, client, start, false},
		"new server": {a, s, server, start, false},
		"hosts in another order and form": {a, s, pki.ServerSubject("fd00:0::7", "10.0.0.7", "a", "b", "a"), start,
			false},
		"no certificate":                    {a, nil, client, start, true},
		"before two thirds of the validity": {a, c, client, start.Add(19 * day), false},
		"after two thirds of the validity":  {a, c, client, start.Add(20 * day), true},
		"expired":                           {a, c, client, start.Add(40 * day), true},
		"not valid yet":                     {a, c, client, start.Add(-day), true},
		"another host":                      {a, s, pki.ServerSubject("a", "b", "10.0.0.8", "fd00::7"), start, true},
		"one host more": {a, s, pki.ServerSubject("a", "b", "c", "10.0.0.7", "fd00::7"), start,
			true},
		"another client": {a, c,
			pki.ClientSubject(types.NamespacedName{Namespace: "team", Name: "prod"}), start, true},
		"server certificate for a client": {a, s, client, start, true},
		"client certificate for a server": {a, c, server, start, true},
		"rotated authority":               {rotate(t, a, start), c, client, start, true},
		"another authority":               {newAuthority(t, start), c, client, start, true},
		"another rotation of this authority": {rotate(t, a, start), issue(t, rotate(t, a, start), client, start),
			client, start, true},
	} {
		if got := x.by.RenewalDue(x.pair, x.of, x.now); got != x.due {
			t.Errorf("%s: due is %t", name, got)
		}
	}
	if got := c.RenewAt().Sub(start); got < 19*day || got > 20*day {
		t.Errorf("renewal after %s", got)
	}
}

func TestNoCertificateOutlivesItsAuthority(t *testing.T) {
	a := newAuthority(t, start)
	late := start.Add(360 * day)
	if got := issue(t, a, pki.ClientSubject(prod), late).
		TLS().Leaf.NotAfter; !got.Equal(start.Add(pki.AuthorityValidity)) {
		t.Errorf("the certificate expires at %s", got)
	}
}

func TestIssueRejectsInvalidSubject(t *testing.T) {
	a := newAuthority(t, start)
	for want, s := range map[string]pki.Subject{
		"for the hosts of a server or for one client": {},
		"or for one client":                           {Hosts: []string{"a"}, Client: prod},
		`"A_b" is neither`:                            pki.ServerSubject("a", "A_b"),
		`"*.example.com" is neither`:                  pki.ServerSubject("*.example.com"),
		`"team/" is not of`:                           pki.ClientSubject(types.NamespacedName{Namespace: "team"}),
		`"te.am/prod" is not of`: pki.ClientSubject(types.NamespacedName{Namespace: "te.am",
			Name: "prod"}),
		`"team/a/b" is not of`: pki.ClientSubject(types.NamespacedName{Namespace: "team",
			Name: "a/b"}),
	} {
		_, err := a.Issue(s, start)
		var invalid *pki.Error
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func secretData(t testing.TB, a *pki.Authority) map[string][]byte {
	t.Helper()
	d, err := a.SecretData()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func keyPairSecretData(t testing.TB, a *pki.Authority, p *pki.KeyPair) map[string][]byte {
	t.Helper()
	d, err := a.KeyPairSecretData(p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAuthoritySecretRoundTrip(t *testing.T) {
	first := newAuthority(t, start)
	second := rotate(t, first, start.Add(243*day))
	for name, a := range map[string]*pki.Authority{"first": first, "second": second,
		"third": rotate(t, second, start.Add(244*day))} {
		read, err := pki.ReadAuthority(secretData(t, a), start.Add(245*day))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !maps.EqualFunc(secretData(t, read), secretData(t, a), bytes.Equal) {
			t.Errorf("%s: the data changed by reading and writing", name)
		}
	}
	read, err := pki.ReadAuthority(secretData(t, second), start.Add(366*day))
	if err != nil || bytes.Count(read.Bundle(), []byte("BEGIN")) != 1 ||
		bytes.Count(issue(t, read, pki.ServerSubject("a"), start).Certificate(), []byte("BEGIN")) != 1 {
		t.Errorf("%v: the previous authority has expired and is kept", err)
	}
}

func TestEnsureAuthority(t *testing.T) {
	made, changed, err := pki.EnsureAuthority(nil, start)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	kept := secretData(t, made)
	for _, x := range []struct {
		after   time.Duration
		changed bool
	}{{0, false}, {242 * day, false}, {244 * day, true}, {400 * day, true}} {
		a, changed, err := pki.EnsureAuthority(kept, start.Add(x.after))
		if err != nil || changed != x.changed || changed == maps.EqualFunc(secretData(t, a), kept, bytes.Equal) {
			t.Errorf("after %s: changed is %t, %v", x.after, changed, err)
		}
	}
	delete(kept, pki.PrivateKey)
	if _, _, err := pki.EnsureAuthority(kept, start); err == nil || err.Error() != "tls.key: missing" {
		t.Errorf("got %v", err)
	}
}

func TestEnsureKeyPair(t *testing.T) {
	a, client := newAuthority(t, start), pki.ClientSubject(prod)
	p := issue(t, a, client, start)
	secret := keyPairSecretData(t, a, p)
	next := rotate(t, a, start)
	for name, x := range map[string]struct {
		by      *pki.Authority
		data    map[string][]byte
		after   time.Duration
		changed bool
		issuing bool
	}{
		"not due":      {by: a, data: secret},
		"due":          {by: a, data: secret, after: 21 * day, changed: true, issuing: true},
		"empty Secret": {by: a, changed: true, issuing: true},
		"invalid Secret": {by: a, data: map[string][]byte{pki.CertificateKey: []byte("x")}, changed: true,
			issuing: true},
		"rotated authority": {by: next, data: secret, changed: true, issuing: true},
		"another bundle": {by: a, data: map[string][]byte{pki.BundleKey: next.Bundle(),
			pki.CertificateKey: secret[pki.CertificateKey], pki.PrivateKey: secret[pki.PrivateKey]}, changed: true},
	} {
		got, changed, err := x.by.EnsureKeyPair(x.data, client, start.Add(x.after))
		if err != nil || changed != x.changed || x.issuing == bytes.Equal(got.Certificate(), p.Certificate()) {
			t.Errorf("%s: changed is %t, %v", name, changed, err)
		}
	}
}

// encodePEM returns one PEM block.
func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func TestReadAuthorityRejectsInvalidData(t *testing.T) {
	a := newAuthority(t, start)
	second, other := rotate(t, a, start), newAuthority(t, start)
	leaf := issue(t, a, pki.ClientSubject(prod), start)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(p384)
	if err != nil {
		t.Fatal(err)
	}
	const secret = "c2VjcmV0"
	for want, x := range map[string]struct {
		of   *pki.Authority
		key  string
		data []byte
	}{
		"tls.key: missing": {a, pki.PrivateKey, nil},
		"tls.key: not PEM": {a, pki.PrivateKey, []byte(secret)},
		"tls.key: not a valid PKCS #8 private key": {a, pki.PrivateKey,
			encodePEM("PRIVATE KEY", []byte(secret))},
		"type PRIVATE KEY": {a, pki.PrivateKey,
			encodePEM("RSA PRIVATE KEY", []byte(secret))},
		"tls.key: does not match the certificate": {a, pki.PrivateKey,
			secretData(t, other)[pki.PrivateKey]},
		"tls.key: not an ECDSA key on curve P-256": {a, pki.PrivateKey, encodePEM("PRIVATE KEY", der)},
		"tls.crt: missing":                         {a, pki.CertificateKey, nil},
		"tls.crt: contains an invalid certificate": {a, pki.CertificateKey,
			encodePEM("CERTIFICATE", []byte(secret))},
		"not a self-signed certificate authority":       {a, pki.CertificateKey, leaf.Certificate()},
		"tls.crt: 70000 bytes exceed the limit":         {a, pki.CertificateKey, make([]byte, 70000)},
		"more than 4 PEM blocks":                        {a, pki.CertificateKey, bytes.Repeat(a.Bundle(), 5)},
		"ca.crt: must contain the authority":            {a, pki.BundleKey, other.Bundle()},
		"ca.crt: must contain the authority of tls.crt": {second, pki.BundleKey, a.Bundle()},
		"is not the authority's certificate cross-signed by ": {second, pki.BundleKey,
			append(bytes.Clone(encodePEM("CERTIFICATE", block(second.Bundle()))), other.Bundle()...)},
	} {
		d := secretData(t, x.of)
		d[x.key] = x.data
		_, err := pki.ReadAuthority(d, start)
		var invalid *pki.Error
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error quotes the data: %v", err)
		}
	}
}

// block returns the content of the first PEM block.
func block(data []byte) []byte {
	b, _ := pem.Decode(data)
	return b.Bytes
}

func TestKeysAreNotPrinted(t *testing.T) {
	a := newAuthority(t, start)
	p := issue(t, a, pki.ClientSubject(prod), start)
	for _, printed := range []string{fmt.Sprintf("%v %+v %#v", a, a, a), fmt.Sprintf("%v %+v %#v", p, p, p)} {
		if len(printed) > 300 || strings.Contains(printed, "big.Int") {
			t.Errorf("the output contains the key: %s", printed)
		}
	}
}

func FuzzReadAuthority(f *testing.F) {
	a := newAuthority(f, start)
	for _, a := range []*pki.Authority{a, rotate(f, a, start)} {
		d := secretData(f, a)
		f.Add(d[pki.BundleKey], d[pki.CertificateKey], d[pki.PrivateKey])
	}
	f.Fuzz(func(t *testing.T, bundle, certificate, key []byte) {
		a, err := pki.ReadAuthority(map[string][]byte{pki.BundleKey: bundle, pki.CertificateKey: certificate,
			pki.PrivateKey: key}, start)
		if err != nil {
			var invalid *pki.Error
			if !errors.As(err, &invalid) {
				t.Errorf("got %T", err)
			}
			return
		}
		if _, err := pki.ReadAuthority(secretData(t, a), start); err != nil {
			t.Errorf("an accepted authority is rejected after writing and reading: %v", err)
		}
	})
}

func FuzzReadKeyPair(f *testing.F) {
	a := newAuthority(f, start)
	for _, s := range []pki.Subject{pki.ClientSubject(prod), pki.ServerSubject("a", "10.0.0.7")} {
		d := keyPairSecretData(f, a, issue(f, a, s, start))
		f.Add(d[pki.CertificateKey], d[pki.PrivateKey])
	}
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		p, err := pki.ReadKeyPair(map[string][]byte{pki.CertificateKey: certificate, pki.PrivateKey: key})
		if err != nil {
			var invalid *pki.Error
			if !errors.As(err, &invalid) {
				t.Errorf("got %T", err)
			}
			return
		}
		_ = a.RenewalDue(p, pki.ClientSubject(prod), start)
		if key, err := pki.ClientOf(p.TLS().Leaf); err == nil {
			if _, err := a.Issue(pki.ClientSubject(key), start); err != nil {
				t.Errorf("no certificate can be issued for a client that ClientOf accepts: %v", err)
			}
		}
	})
}
