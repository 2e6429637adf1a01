package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
)

// Of what is read at most.
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

// blocks are those of PEM, which has nothing else in it.
func blocks(field string, data []byte, kind string, most int) ([][]byte, error) {
	if len(data) == 0 {
		return nil, refuse(field, "it is missing")
	}
	if len(data) > maxBytes {
		return nil, refuse(field, "it has %d bytes; at most %d are read", len(data), maxBytes)
	}
	var out [][]byte
	for rest := data; len(bytes.TrimSpace(rest)) > 0; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil || b.Type != kind || len(b.Headers) > 0 {
			return nil, refuse(field, "it is not PEM of type %s", kind)
		}
		if out = append(out, b.Bytes); len(out) > most {
			return nil, refuse(field, "it has more than %d blocks of type %s", most, kind)
		}
	}
	if len(out) == 0 {
		return nil, refuse(field, "it is not PEM of type %s", kind)
	}
	return out, nil
}

func readCertificates(field string, data []byte) ([]*x509.Certificate, error) {
	ders, err := blocks(field, data, certificateType, maxCertificates)
	if err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for _, der := range ders {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, refuse(field, "a certificate in it can't be read")
		}
		out = append(out, c)
	}
	return out, nil
}

// readKey reads the private key of a certificate.
func readKey(field string, data []byte, of *x509.Certificate) (*ecdsa.PrivateKey, error) {
	ders, err := blocks(field, data, keyType, 1)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(ders[0])
	if err != nil {
		return nil, refuse(field, "it can't be read") // what is wrong with it may quote it
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, refuse(field, "it is no ECDSA key of the curve P-256")
	}
	if !key.PublicKey.Equal(of.PublicKey) {
		return nil, refuse(field, "it is the key of another certificate than %s", CertificateKey)
	}
	return key, nil
}
