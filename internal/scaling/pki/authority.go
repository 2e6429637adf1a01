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

// organization stands in the subject of every certificate.
const organization = "ksctl-gitops"

// Authority signs certificates. It holds a private key, and is not changed.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// previous is that which was there before; nil: there was none.
	previous *x509.Certificate
	// crossed is of this authority's key, signed by the previous one: whoever knows that alone
	// takes what this one issues.
	crossed *x509.Certificate
}

// NewAuthority makes an authority.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := authorityTemplate(now)
	if err != nil {
		return nil, err
	}
	// One more authority may stand below it, which is the next one.
	template.MaxPathLen = 1
	cert, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &Authority{cert: cert, key: key}, nil
}

func authorityTemplate(now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	name := pkix.Name{Organization: []string{organization}, CommonName: "node groups " + hex.EncodeToString(serial.FillBytes(make([]byte, serialBytes))[:4])}
	return &x509.Certificate{SerialNumber: serial, Subject: name, NotBefore: now.Add(-Skew), NotAfter: now.Add(AuthorityLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}, nil
}

// serialBytes of a serial number, of which one bit is not used: it is positive.
const serialBytes = 16

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBytes*8-1))
}

// sign makes a certificate.
func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Rotated is a new authority, which knows this one as the one before. What this one issued
// is valid until it ends.
func (a *Authority) Rotated(now time.Time) (*Authority, error) {
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
	if next.crossed, err = sign(template, a.cert, &next.key.PublicKey, a.key); err != nil {
		return nil, err
	}
	next.previous = a.cert
	return next, nil
}

// Aged is true when the authority is to be rotated.
func (a *Authority) Aged(now time.Time) bool { return aged(a.cert, now) }

// RenewAt is when it is to be rotated.
func (a *Authority) RenewAt() time.Time { return renewAt(a.cert) }

// trusted are the certificates of the bundle.
func (a *Authority) trusted() []*x509.Certificate {
	if a.previous == nil {
		return []*x509.Certificate{a.cert}
	}
	return []*x509.Certificate{a.cert, a.previous}
}

// Bundle is PEM of the certificates that are to be trusted.
func (a *Authority) Bundle() []byte { return encodeCertificates(a.trusted()...) }

// Pool has the certificates that are to be trusted.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range a.trusted() {
		pool.AddCert(c)
	}
	return pool
}

// chain is what follows a certificate that the authority issues.
func (a *Authority) chain() []*x509.Certificate {
	if a.crossed == nil {
		return nil
	}
	return []*x509.Certificate{a.crossed}
}

// Format implements fmt.Formatter: an authority is never printed.
func (a *Authority) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "authority %q until %s", a.cert.Subject.CommonName, a.cert.NotAfter.Format(time.RFC3339))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
