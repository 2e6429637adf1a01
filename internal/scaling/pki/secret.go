package pki

import (
	"bytes"
	"crypto/x509"
	"time"
)

// SecretData returns the data of the authority's Secret: the bundle, its own certificate followed
// by the cross-signed one, and its private key.
func (a *Authority) SecretData() (map[string][]byte, error) {
	return a.KeyPairSecretData(&KeyPair{chain: append([]*x509.Certificate{a.cert}, a.intermediates...), key: a.key})
}

// ReadAuthority reads the data that SecretData returned. It drops the previous authority once that
// has expired. The error is an *Error.
func ReadAuthority(data map[string][]byte, now time.Time) (*Authority, error) {
	chain, err := readCertificates(CertificateKey, data[CertificateKey])
	if err != nil {
		return nil, err
	}
	a := &Authority{cert: chain[0], roots: chain[:1]}
	if !a.cert.IsCA || a.cert.CheckSignatureFrom(a.cert) != nil {
		return nil, errorf(CertificateKey, "the first certificate is not a self-signed certificate authority")
	}
	if a.key, err = readKey(PrivateKey, data[PrivateKey], a.cert); err != nil {
		return nil, err
	}
	bundle, err := readCertificates(BundleKey, data[BundleKey])
	if err != nil {
		return nil, err
	}
	if !bundle[0].Equal(a.cert) || len(bundle) > 2 || len(chain) != len(bundle) {
		return nil, errorf(BundleKey,
			"must contain the authority of %[1]s, followed by the previous authority only if %[1]s has a second "+
				"certificate", CertificateKey)
	}
	if len(bundle) == 1 {
		return a, nil
	}
	previous, crossSigned := bundle[1], chain[1]
	if crossSigned.CheckSignatureFrom(previous) != nil || !crossSigned.IsCA ||
		!a.key.PublicKey.Equal(crossSigned.PublicKey) {
		return nil, errorf(CertificateKey,
			"the second certificate is not the authority's certificate cross-signed by the previous authority")
	}
	if now.Before(previous.NotAfter) {
		a.roots, a.intermediates = bundle, chain[1:]
	}
	return a, nil
}

// KeyPairSecretData returns the data of the Secret of a server or a client: the bundle that it
// trusts, its certificate with the intermediates, and its private key.
func (a *Authority) KeyPairSecretData(p *KeyPair) (map[string][]byte, error) {
	key, err := encodeKey(p.key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{BundleKey: a.Bundle(), CertificateKey: p.Certificate(), PrivateKey: key}, nil
}

// ReadKeyPair reads the data that KeyPairSecretData returned. It does not verify who signed the
// certificate: RenewalDue does. The error is an *Error.
func ReadKeyPair(data map[string][]byte) (*KeyPair, error) {
	chain, err := readCertificates(CertificateKey, data[CertificateKey])
	if err != nil {
		return nil, err
	}
	key, err := readKey(PrivateKey, data[PrivateKey], chain[0])
	if err != nil {
		return nil, err
	}
	return &KeyPair{chain: chain, key: key}, nil
}

// EnsureAuthority returns the authority of a Secret: unchanged, rotated if that is due, or a new
// one if the Secret has no data. changed reports whether the caller must write the Secret. If the
// data is invalid, the error is an *Error: EnsureAuthority never replaces an authority that it
// can't read.
func EnsureAuthority(data map[string][]byte, now time.Time) (a *Authority, changed bool, err error) {
	if len(data) == 0 {
		a, err = NewAuthority(now)
		return a, true, err
	}
	if a, err = ReadAuthority(data, now); err != nil {
		return nil, false, err
	}
	if renewalDue(a.cert, now) {
		a, err = a.Rotate(now)
		return a, true, err
	}
	return a, false, nil
}

// EnsureKeyPair returns the key pair of a Secret: unchanged, or newly issued if renewal is due or
// the data is invalid. changed reports whether the caller must write the Secret; that includes a
// change of the bundle alone.
func (a *Authority) EnsureKeyPair(data map[string][]byte, s Subject,
	now time.Time) (p *KeyPair, changed bool, err error) {
	if p, err = ReadKeyPair(data); err == nil && !a.RenewalDue(p, s, now) {
		return p, !bytes.Equal(data[BundleKey], a.Bundle()), nil
	}
	p, err = a.Issue(s, now)
	return p, true, err
}
