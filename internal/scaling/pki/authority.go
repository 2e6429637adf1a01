package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"math/big"
	"time"
)

// organization is in the subject of every certificate.
const organization = "ksctl-gitops"

// Authority is a certificate authority with its private key. It is immutable.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// roots are the trusted certificates: cert, and that of the previous authority after a
	// rotation.
	roots []*x509.Certificate
	// intermediates follow each certificate that the authority issues. After a rotation this is a
	// certificate for this authority's key, signed by the previous authority: a peer that trusts
	// only the previous authority accepts certificates of this authority through it.
	intermediates []*x509.Certificate
}

// NewAuthority creates a self-signed authority.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := authorityTemplate(now)
	if err != nil {
		return nil, err
	}
	// One intermediate is allowed: the next authority, cross-signed by this one.
	template.MaxPathLen = 1
	cert, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: cert, key: key, roots: []*x509.Certificate{cert}}, nil
}

func authorityTemplate(now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	name := pkix.Name{Organization: []string{organization}, CommonName: "node groups " +
		hex.EncodeToString(serial.FillBytes(make([]byte, serialBytes))[:4])}
	return &x509.Certificate{SerialNumber: serial, Subject: name, NotBefore: now.Add(-ClockSkew),
			NotAfter: now.Add(AuthorityValidity),
			IsCA:     true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature},
		nil
}

// serialBytes is the size of a serial number. Its highest bit is unused because serial numbers are
// positive.
const serialBytes = 16

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBytes*8-1))
}

// sign creates a certificate from a template and parses it.
func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey,
	key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Rotate returns a new authority whose previous authority is this one. Certificates that this
// authority issued stay valid until they expire. An expired authority is not kept as the previous
// one.
func (a *Authority) Rotate(now time.Time) (*Authority, error) {
	next, err := NewAuthority(now)
	if err != nil || !now.Before(a.cert.NotAfter) {
		return next, err
	}
	template, err := authorityTemplate(now)
	if err != nil {
		return nil, err
	}
	template.Subject, template.MaxPathLen, template.MaxPathLenZero = next.cert.Subject, 0, true
	template.NotAfter = earlier(template.NotAfter, a.cert.NotAfter)
	crossSigned, err := sign(template, a.cert, &next.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	next.roots, next.intermediates = append(next.roots, a.cert), []*x509.Certificate{crossSigned}
	return next, nil
}

// Bundle returns the trusted certificates in PEM.
func (a *Authority) Bundle() []byte { return encodeCertificates(a.roots...) }

// Pool returns a pool of the trusted certificates.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range a.roots {
		pool.AddCert(c)
	}
	return pool
}

// Format implements fmt.Formatter, so that the private key is never printed.
func (a *Authority) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "authority %q until %s", a.cert.Subject.CommonName, a.cert.NotAfter.Format(time.RFC3339))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
