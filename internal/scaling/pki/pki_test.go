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

func authority(t testing.TB, now time.Time) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t testing.TB, a *pki.Authority, s pki.Subject, now time.Time) *pki.Pair {
	t.Helper()
	p, err := a.Issue(s, now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rotated(t testing.TB, a *pki.Authority, now time.Time) *pki.Authority {
	t.Helper()
	next, err := a.Rotated(now)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// shake has a client and a server speak, each of whom trusts who an authority trusts.
func shake(t *testing.T, server, client *pki.Pair, serverTrusts, clientTrusts *pki.Authority, host string, now time.Time) (types.NamespacedName, error) {
	t.Helper()
	at := func() time.Time { return now }
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server.TLS()},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: serverTrusts.Pool(), Time: at})
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
	c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{client.TLS()},
		RootCAs: clientTrusts.Pool(), ServerName: host, Time: at})
	if err == nil {
		defer func() { _ = c.Close() }()
	}
	a := <-served
	return a.key, errors.Join(err, a.err)
}

func TestWhoKnowsWhom(t *testing.T) {
	first := authority(t, start)
	later := start.Add(240 * day)
	second := rotated(t, first, later)
	third := rotated(t, second, later.Add(day))
	other := authority(t, later)
	server, client := pki.Server("groups.ksctl.svc", "10.0.0.7"), pki.Client(prod)
	for what, c := range map[string]struct {
		server, client             *pki.Authority
		serverTrusts, clientTrusts *pki.Authority
		host                       string
		after                      time.Duration
		fails                      bool
	}{
		"one authority":                        {server: first, client: first, serverTrusts: first, clientTrusts: first},
		"by address":                           {server: first, client: first, serverTrusts: first, clientTrusts: first, host: "10.0.0.7"},
		"another host":                         {server: first, client: first, serverTrusts: first, clientTrusts: first, host: "groups.other.svc", fails: true},
		"a client of before the rotation":      {server: second, client: first, serverTrusts: second, clientTrusts: second},
		"a client that knows of none":          {server: second, client: first, serverTrusts: second, clientTrusts: first},
		"a server that knows of none":          {server: first, client: second, serverTrusts: first, clientTrusts: second},
		"of two rotations":                     {server: third, client: first, serverTrusts: third, clientTrusts: first, fails: true},
		"another authority's client":           {server: first, client: other, serverTrusts: first, clientTrusts: first, fails: true},
		"another authority's server":           {server: other, client: first, serverTrusts: first, clientTrusts: first, fails: true},
		"a clock that is late":                 {server: first, client: first, serverTrusts: first, clientTrusts: first, after: -4 * time.Minute},
		"a clock that is much too late":        {server: first, client: first, serverTrusts: first, clientTrusts: first, after: -time.Hour, fails: true},
		"the last day":                         {server: first, client: first, serverTrusts: first, clientTrusts: first, after: 29 * day},
		"a certificate that has ended":         {server: first, client: first, serverTrusts: first, clientTrusts: first, after: 31 * day, fails: true},
		"the same, when the authority is anew": {server: second, client: first, serverTrusts: second, clientTrusts: second, after: 31 * day, fails: true},
	} {
		t.Run(what, func(t *testing.T) {
			host := "groups.ksctl.svc"
			if c.host != "" {
				host = c.host
			}
			now := later.Add(c.after)
			key, err := shake(t, issue(t, c.server, server, later), issue(t, c.client, client, later), c.serverTrusts, c.clientTrusts, host, now)
			if c.fails != (err != nil) || err == nil && key != prod {
				t.Errorf("got %s, %v", key, err)
			}
		})
	}
}

func TestAClientIsNoServer(t *testing.T) {
	a := authority(t, start)
	server, client := issue(t, a, pki.Server("groups"), start), issue(t, a, pki.Client(prod), start)
	for what, pair := range map[string][2]*pki.Pair{"a server as client": {server, server}, "a client as server": {client, client}} {
		if _, err := shake(t, pair[0], pair[1], a, a, "groups", start); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestDue(t *testing.T) {
	a := authority(t, start)
	server, client := pki.Server("b", "10.0.0.7", "a", "fd00::7"), pki.Client(prod)
	s, c := issue(t, a, server, start), issue(t, a, client, start)
	for what, x := range map[string]struct {
		by   *pki.Authority
		pair *pki.Pair
		of   pki.Subject
		now  time.Time
		due  bool
	}{
		"new":                    {a, c, client, start, false},
		"a server":               {a, s, server, start, false},
		"the hosts anyhow":       {a, s, pki.Server("fd00:0::7", "10.0.0.7", "a", "b", "a"), start, false},
		"none":                   {a, nil, client, start, true},
		"not yet two thirds":     {a, c, client, start.Add(19 * day), false},
		"two thirds":             {a, c, client, start.Add(20 * day), true},
		"ended":                  {a, c, client, start.Add(40 * day), true},
		"of a time to come":      {a, c, client, start.Add(-day), true},
		"another host":           {a, s, pki.Server("a", "b", "10.0.0.8", "fd00::7"), start, true},
		"one host more":          {a, s, pki.Server("a", "b", "c", "10.0.0.7", "fd00::7"), start, true},
		"another client":         {a, c, pki.Client(types.NamespacedName{Namespace: "team", Name: "prod"}), start, true},
		"a server for a client":  {a, s, client, start, true},
		"a client for a server":  {a, c, server, start, true},
		"the authority is anew":  {rotated(t, a, start), c, client, start, true},
		"of another authority":   {authority(t, start), c, client, start, true},
		"signed after it is new": {rotated(t, a, start), issue(t, rotated(t, a, start), client, start), client, start, true},
	} {
		if got := x.by.Due(x.pair, x.of, x.now); got != x.due {
			t.Errorf("%s: due is %t", what, got)
		}
	}
	if got := c.RenewAt().Sub(start); got < 19*day || got > 20*day {
		t.Errorf("it is renewed after %s", got)
	}
}

func TestNoCertificateOutlivesItsAuthority(t *testing.T) {
	a := authority(t, start)
	late := start.Add(360 * day)
	if got := issue(t, a, pki.Client(prod), late).Leaf().NotAfter; !got.Equal(start.Add(pki.AuthorityLife)) {
		t.Errorf("it ends at %s", got)
	}
}

func TestIssueRefuses(t *testing.T) {
	a := authority(t, start)
	for want, s := range map[string]pki.Subject{
		"for the hosts of a server, or for one client": {},
		"or for one client":                            {Hosts: []string{"a"}, Client: prod},
		`"A_b" is neither`:                             pki.Server("a", "A_b"),
		`"*.example.com" is neither`:                   pki.Server("*.example.com"),
		`"team/" is no`:                                pki.Client(types.NamespacedName{Namespace: "team"}),
		`"te.am/prod" is no`:                           pki.Client(types.NamespacedName{Namespace: "te.am", Name: "prod"}),
		`"team/a/b" is no`:                             pki.Client(types.NamespacedName{Namespace: "team", Name: "a/b"}),
	} {
		_, err := a.Issue(s, start)
		var refused *pki.Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func data(t testing.TB, a *pki.Authority) map[string][]byte {
	t.Helper()
	d, err := a.Data()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func pairData(t testing.TB, a *pki.Authority, p *pki.Pair) map[string][]byte {
	t.Helper()
	d, err := a.PairData(p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAuthorityInASecret(t *testing.T) {
	first := authority(t, start)
	second := rotated(t, first, start.Add(243*day))
	for what, a := range map[string]*pki.Authority{"first": first, "second": second, "third": rotated(t, second, start.Add(244*day))} {
		read, err := pki.ReadAuthority(data(t, a), start.Add(245*day))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if !maps.EqualFunc(data(t, read), data(t, a), bytes.Equal) {
			t.Errorf("%s: it was read as another one", what)
		}
	}
	read, err := pki.ReadAuthority(data(t, second), start.Add(366*day))
	if err != nil || bytes.Count(read.Bundle(), []byte("BEGIN")) != 1 || bytes.Count(issue(t, read, pki.Server("a"), start).Certificate(), []byte("BEGIN")) != 1 {
		t.Errorf("%v: the one before has ended, and is kept", err)
	}
}

func TestKeep(t *testing.T) {
	made, changed, err := pki.Keep(nil, start)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	kept := data(t, made)
	for _, x := range []struct {
		after   time.Duration
		changed bool
	}{{0, false}, {242 * day, false}, {244 * day, true}, {400 * day, true}} {
		a, changed, err := pki.Keep(kept, start.Add(x.after))
		if err != nil || changed != x.changed || changed == maps.EqualFunc(data(t, a), kept, bytes.Equal) {
			t.Errorf("after %s: changed is %t, %v", x.after, changed, err)
		}
	}
	delete(kept, pki.PrivateKey)
	if _, _, err := pki.Keep(kept, start); err == nil || err.Error() != "tls.key: it is missing" {
		t.Errorf("got %v", err)
	}
}

func TestRenew(t *testing.T) {
	a, client := authority(t, start), pki.Client(prod)
	p := issue(t, a, client, start)
	secret := pairData(t, a, p)
	next := rotated(t, a, start)
	for what, x := range map[string]struct {
		by      *pki.Authority
		data    map[string][]byte
		after   time.Duration
		changed bool
		issuing bool
	}{
		"nothing is due":       {by: a, data: secret},
		"it is old":            {by: a, data: secret, after: 21 * day, changed: true, issuing: true},
		"there is none":        {by: a, changed: true, issuing: true},
		"it can't be read":     {by: a, data: map[string][]byte{pki.CertificateKey: []byte("x")}, changed: true, issuing: true},
		"the authority is new": {by: next, data: secret, changed: true, issuing: true},
		"another is trusted":   {by: a, data: map[string][]byte{pki.BundleKey: next.Bundle(), pki.CertificateKey: secret[pki.CertificateKey], pki.PrivateKey: secret[pki.PrivateKey]}, changed: true},
	} {
		got, changed, err := x.by.Renew(x.data, client, start.Add(x.after))
		if err != nil || changed != x.changed || x.issuing == bytes.Equal(got.Certificate(), p.Certificate()) {
			t.Errorf("%s: changed is %t, %v", what, changed, err)
		}
	}
}

// pemOf is PEM of a type.
func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func TestReadRefuses(t *testing.T) {
	a := authority(t, start)
	second, other := rotated(t, a, start), authority(t, start)
	leaf := issue(t, a, pki.Client(prod), start)
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
		"tls.key: it is missing":                  {a, pki.PrivateKey, nil},
		"tls.key: it is not PEM":                  {a, pki.PrivateKey, []byte(secret)},
		"tls.key: it can't be read":               {a, pki.PrivateKey, pemOf("PRIVATE KEY", []byte(secret))},
		"type PRIVATE KEY":                        {a, pki.PrivateKey, pemOf("RSA PRIVATE KEY", []byte(secret))},
		"it is the key of another certificate":    {a, pki.PrivateKey, data(t, other)[pki.PrivateKey]},
		"it is no ECDSA key of the curve P-256":   {a, pki.PrivateKey, pemOf("PRIVATE KEY", der)},
		"tls.crt: it is missing":                  {a, pki.CertificateKey, nil},
		"tls.crt: a certificate in it can't":      {a, pki.CertificateKey, pemOf("CERTIFICATE", []byte(secret))},
		"not that of an authority":                {a, pki.CertificateKey, leaf.Certificate()},
		"tls.crt: it has 70000 bytes":             {a, pki.CertificateKey, make([]byte, 70000)},
		"it has more than 4 blocks":               {a, pki.CertificateKey, bytes.Repeat(a.Bundle(), 5)},
		"ca.crt: it has not that authority":       {a, pki.BundleKey, other.Bundle()},
		"ca.crt: it has not that authority, and ": {second, pki.BundleKey, a.Bundle()},
		"was not given to that authority":         {second, pki.BundleKey, append(bytes.Clone(pemOf("CERTIFICATE", block(second.Bundle()))), other.Bundle()...)},
	} {
		d := data(t, x.of)
		d[x.key] = x.data
		_, err := pki.ReadAuthority(d, start)
		var refused *pki.Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("it tells what it read: %v", err)
		}
	}
}

// block is the first one of PEM.
func block(data []byte) []byte {
	b, _ := pem.Decode(data)
	return b.Bytes
}

func TestKeysAreNotPrinted(t *testing.T) {
	a := authority(t, start)
	p := issue(t, a, pki.Client(prod), start)
	for _, said := range []string{fmt.Sprintf("%v %+v %#v", a, a, a), fmt.Sprintf("%v %+v %#v", p, p, p)} {
		if len(said) > 300 || strings.Contains(said, "big.Int") {
			t.Errorf("it tells too much: %s", said)
		}
	}
}

func FuzzReadAuthority(f *testing.F) {
	a := authority(f, start)
	for _, a := range []*pki.Authority{a, rotated(f, a, start)} {
		d := data(f, a)
		f.Add(d[pki.BundleKey], d[pki.CertificateKey], d[pki.PrivateKey])
	}
	f.Fuzz(func(t *testing.T, bundle, certificate, key []byte) {
		a, err := pki.ReadAuthority(map[string][]byte{pki.BundleKey: bundle, pki.CertificateKey: certificate, pki.PrivateKey: key}, start)
		if err != nil {
			var refused *pki.Error
			if !errors.As(err, &refused) {
				t.Errorf("got %T", err)
			}
			return
		}
		if _, err := pki.ReadAuthority(data(t, a), start); err != nil {
			t.Errorf("what was taken is refused when it is read again: %v", err)
		}
	})
}

func FuzzReadPair(f *testing.F) {
	a := authority(f, start)
	for _, s := range []pki.Subject{pki.Client(prod), pki.Server("a", "10.0.0.7")} {
		d := pairData(f, a, issue(f, a, s, start))
		f.Add(d[pki.CertificateKey], d[pki.PrivateKey])
	}
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		p, err := pki.ReadPair(map[string][]byte{pki.CertificateKey: certificate, pki.PrivateKey: key})
		if err != nil {
			var refused *pki.Error
			if !errors.As(err, &refused) {
				t.Errorf("got %T", err)
			}
			return
		}
		_ = a.Due(p, pki.Client(prod), start)
		if key, err := pki.ClientOf(p.Leaf()); err == nil {
			if _, err := a.Issue(pki.Client(key), start); err != nil {
				t.Errorf("a client that is known can't be issued anything: %v", err)
			}
		}
	})
}
