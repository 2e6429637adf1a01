package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// Pair is a certificate with what leads to the authority, and its private key. It is not changed.
type Pair struct {
	// chain begins with the certificate itself.
	chain []*x509.Certificate
	key   *ecdsa.PrivateKey
}

// Issue makes a certificate for a server or a client. Where that can't be, the error is an *Error.
func (a *Authority) Issue(s Subject, now time.Time) (*Pair, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-Skew), NotAfter: earlier(now.Add(LeafLife), a.cert.NotAfter),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature}
	s.write(template)
	cert, err := sign(template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &Pair{chain: append([]*x509.Certificate{cert}, a.chain()...), key: key}, nil
}

// Due is true when a certificate is to be issued anew: there is none, two thirds of its life
// are over, it is for somebody else, or this authority did not sign it.
func (a *Authority) Due(p *Pair, s Subject, now time.Time) bool {
	return p == nil || aged(p.chain[0], now) || !s.is(p.chain[0]) || p.chain[0].CheckSignatureFrom(a.cert) != nil
}

// RenewAt is when two thirds of its life are over.
func (p *Pair) RenewAt() time.Time { return renewAt(p.chain[0]) }

// Leaf is the certificate itself. It must not be changed.
func (p *Pair) Leaf() *x509.Certificate { return p.chain[0] }

// TLS is the pair as a server or a client shows it.
func (p *Pair) TLS() tls.Certificate {
	out := tls.Certificate{PrivateKey: p.key, Leaf: p.chain[0]}
	for _, c := range p.chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out
}

// Certificate is PEM of the certificate and what leads to the authority. It has no secrets.
func (p *Pair) Certificate() []byte { return encodeCertificates(p.chain...) }

// Format implements fmt.Formatter: a pair is never printed.
func (p *Pair) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "certificate of %q until %s", p.chain[0].Subject.CommonName, p.chain[0].NotAfter.Format(time.RFC3339))
}
