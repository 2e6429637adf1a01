package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
)

// Limits on the size and the number of certificates of one PEM value.
const (
	maxBytes        = 64 << 10
	maxCertificates = 4
)

const (
	certificateType = "CERTIFICATE"
	keyType         = "PRIVATE KEY"
)

func encodeCertificates(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: c.Raw})...)
	}
	return out
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), nil
}

// decodePEM returns the content of the PEM blocks. All blocks must be of the given type and without
// headers, and nothing else may be in the data.
func decodePEM(field string, data []byte, blockType string, maxBlocks int) ([][]byte, error) {
	if len(data) == 0 {
		return nil, errorf(field, "missing")
	}
	if len(data) > maxBytes {
		return nil, errorf(field, "%d bytes exceed the limit of %d", len(data), maxBytes)
	}
	var out [][]byte
	for rest := data; len(bytes.TrimSpace(rest)) > 0; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil || b.Type != blockType || len(b.Headers) > 0 {
			return nil, errorf(field, "not PEM of type %s", blockType)
		}
		if out = append(out, b.Bytes); len(out) > maxBlocks {
			return nil, errorf(field, "more than %d PEM blocks of type %s", maxBlocks, blockType)
		}
	}
	if len(out) == 0 {
		return nil, errorf(field, "not PEM of type %s", blockType)
	}
	return out, nil
}

func readCertificates(field string, data []byte) ([]*x509.Certificate, error) {
	ders, err := decodePEM(field, data, certificateType, maxCertificates)
	if err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for _, der := range ders {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, errorf(field, "contains an invalid certificate")
		}
		out = append(out, c)
	}
	return out, nil
}

// readKey reads a private key and checks that it belongs to the certificate.
func readKey(field string, data []byte, cert *x509.Certificate) (*ecdsa.PrivateKey, error) {
	ders, err := decodePEM(field, data, keyType, 1)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(ders[0])
	if err != nil {
		return nil, errorf(field, "not a valid PKCS #8 private key") // the cause may quote the key
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errorf(field, "not an ECDSA key on curve P-256")
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errorf(field, "does not match the certificate in %s", CertificateKey)
	}
	return key, nil
}
