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

// certificateLife is longer than any suite and shorter than any use beyond.
const certificateLife = 7 * 24 * time.Hour

// pki signs everything in one cluster: the API server's certificate and those
// of its clients.
type pki struct {
	ca    *x509.Certificate
	key   crypto.Signer
	caPEM []byte
}

// pair is a certificate and its key, in PEM.
type pair struct{ cert, key []byte }

func newPKI() (*pki, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the CA: %w", err)
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "ksctl-e2e"}, key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the CA: %w", err)
	}
	return &pki{ca: ca, key: key, caPEM: encodeCertificate(ca.Raw)}, nil
}

// client makes a client certificate for a user and its groups.
func (p *pki) client(user string, groups []string) (pair, error) {
	return p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server makes the API server's certificate: for loopback, and for the names
// and the addresses that a cluster's own clients would use.
func (p *pki) server(more []net.IP) (pair, error) {
	return p.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)}, more...),
	})
}

func (p *pki) sign(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make a key for %s: %w", template.Subject.CommonName, err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return pair{}, fmt.Errorf("make a serial number: %w", err)
	}
	// An hour back: clocks that are set while a suite runs do no harm.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(certificateLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, p.ca, key.Public(), p.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign a certificate for %s: %w", template.Subject.CommonName, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode the key of %s: %w", template.Subject.CommonName, err)
	}
	return pair{cert: encodeCertificate(der), key: keyPEM}, nil
}

// write puts the files that the programs need into the run folder.
func (p *pki) write(r *runDir, more []net.IP) error {
	serving, err := p.server(more)
	if err != nil {
		return err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key that signs service account tokens: %w", err)
	}
	accountsPEM, err := keyutil.MarshalPrivateKeyToPEM(accounts)
	if err != nil {
		return fmt.Errorf("encode the key that signs service account tokens: %w", err)
	}
	for name, data := range map[string][]byte{
		caFile:             p.caPEM,
		servingCertFile:    serving.cert,
		servingKeyFile:     serving.key,
		serviceAccountFile: accountsPEM,
	} {
		if err := os.WriteFile(r.path(name), data, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
