package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certificateLifetime is longer than any suite, and short because nothing else may use the
// certificates.
const certificateLifetime = 7 * 24 * time.Hour

// pki is the CA of one cluster. It signs the API server's certificate and the client certificates.
type pki struct {
	ca    *x509.Certificate
	key   crypto.Signer
	caPEM []byte
}

// keyPair is a certificate and its private key, in PEM.
type keyPair struct{ cert, key []byte }

func newPKI() (*pki, error) {
	key, _, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("creating the key of the CA: %w", err)
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "ksctl-e2e"}, key)
	if err != nil {
		return nil, fmt.Errorf("creating the certificate of the CA: %w", err)
	}
	return &pki{ca: ca, key: key, caPEM: encodeCertificate(ca.Raw)}, nil
}

// client issues a client certificate for a user and its groups.
func (p *pki) client(user string, groups []string) (keyPair, error) {
	return p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server issues the API server's certificate for loopback, for the in-cluster names and address of
// the Service kubernetes, and for more addresses.
func (p *pki) server(more []net.IP) (keyPair, error) {
	return p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)}, more...),
	})
}

func (p *pki) sign(template *x509.Certificate) (keyPair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return keyPair{}, fmt.Errorf("creating a key for %s: %w", template.Subject.CommonName, err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return keyPair{}, fmt.Errorf("creating a serial number: %w", err)
	}
	// An hour ago, so that a clock adjusted while a suite runs does not invalidate the certificate.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(certificateLifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, p.ca, key.Public(), p.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("signing a certificate for %s: %w", template.Subject.CommonName, err)
	}
	return keyPair{cert: encodeCertificate(der), key: keyPEM}, nil
}

// write writes the CA, the serving certificate and the token signing key into the run's folder.
func (p *pki) write(r *runDir, more []net.IP) error {
	serving, err := p.server(more)
	if err != nil {
		return err
	}
	_, accountsPEM, err := newKey()
	if err != nil {
		return fmt.Errorf("creating the key that signs service account tokens: %w", err)
	}
	for name, data := range map[string][]byte{
		caFile:             p.caPEM,
		servingCertFile:    serving.cert,
		servingKeyFile:     serving.key,
		serviceAccountFile: accountsPEM,
	} {
		if err := os.WriteFile(r.path(name), data, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// newKey creates a private key and encodes it.
func newKey() (key *ecdsa.PrivateKey, keyPEM []byte, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	return key, keyPEM, err
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
