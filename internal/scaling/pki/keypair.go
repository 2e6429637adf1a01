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

// KeyPair is a certificate with its intermediate certificates and its private key. It is immutable.
type KeyPair struct {
	// chain begins with the certificate itself; the intermediates follow.
	chain []*x509.Certificate
	key   *ecdsa.PrivateKey
}

// Issue issues a certificate for a server or a client. The error is an *Error if the subject is
// invalid.
func (a *Authority) Issue(s Subject, now time.Time) (*KeyPair, error) {
	if err := s.validate(); err != nil {
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
	template := &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-ClockSkew),
		NotAfter:              earlier(now.Add(LeafValidity), a.cert.NotAfter),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature}
	s.applyTo(template)
	cert, err := sign(template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &KeyPair{chain: append([]*x509.Certificate{cert}, a.intermediates...), key: key}, nil
}

// RenewalDue reports whether a new certificate must be issued for the subject: p is nil, two thirds
// of its validity have passed, it is for another subject, or this authority did not sign it.
func (a *Authority) RenewalDue(p *KeyPair, s Subject, now time.Time) bool {
	return p == nil || renewalDue(p.chain[0], now) || !s.matches(p.chain[0]) ||
		p.chain[0].CheckSignatureFrom(a.cert) != nil
}

// RenewAt returns the time at which two thirds of the certificate's validity have passed.
func (p *KeyPair) RenewAt() time.Time { return renewAt(p.chain[0]) }

// TLS returns the key pair in the form that crypto/tls presents to a peer.
func (p *KeyPair) TLS() tls.Certificate {
	out := tls.Certificate{PrivateKey: p.key, Leaf: p.chain[0]}
	for _, c := range p.chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out
}

// Certificate returns the certificate and its intermediates in PEM. The result contains no secrets.
func (p *KeyPair) Certificate() []byte { return encodeCertificates(p.chain...) }

// Format implements fmt.Formatter, so that the private key is never printed.
func (p *KeyPair) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "certificate of %q until %s", p.chain[0].Subject.CommonName,
		p.chain[0].NotAfter.Format(time.RFC3339))
}
