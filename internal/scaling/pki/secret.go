package pki

import (
	"bytes"
	"crypto/x509"
	"time"
)

// Data is what is kept of an authority in its Secret: the bundle, its own certificate and that
// which the one before gave it, and its private key.
func (a *Authority) Data() (map[string][]byte, error) {
	key, err := encodeKey(a.key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{BundleKey: a.Bundle(), CertificateKey: encodeCertificates(append([]*x509.Certificate{a.cert}, a.chain()...)...), PrivateKey: key}, nil
}

// ReadAuthority reads what Data wrote. The one before is left out when it has ended. The error is
// an *Error.
func ReadAuthority(data map[string][]byte, now time.Time) (*Authority, error) {
	own, err := readCertificates(CertificateKey, data[CertificateKey])
	if err != nil {
		return nil, err
	}
	a := &Authority{cert: own[0]}
	if !a.cert.IsCA || a.cert.CheckSignatureFrom(a.cert) != nil {
		return nil, refuse(CertificateKey, "its first certificate is not that of an authority that signed itself")
	}
	if a.key, err = readKey(PrivateKey, data[PrivateKey], a.cert); err != nil {
		return nil, err
	}
	bundle, err := readCertificates(BundleKey, data[BundleKey])
	if err != nil {
		return nil, err
	}
	if !bundle[0].Equal(a.cert) || len(bundle) > 2 || len(own) != len(bundle) {
		return nil, refuse(BundleKey, "it has not that authority, and after it at most the one before, which gave it the second certificate of %s", CertificateKey)
	}
	if len(bundle) == 1 {
		return a, nil
	}
	previous, crossed := bundle[1], own[1]
	if crossed.CheckSignatureFrom(previous) != nil || !crossed.IsCA || !a.key.PublicKey.Equal(crossed.PublicKey) {
		return nil, refuse(CertificateKey, "its second certificate was not given to that authority by the one before")
	}
	if now.Before(previous.NotAfter) {
		a.previous, a.crossed = previous, crossed
	}
	return a, nil
}

// PairData is what is kept of a server or a client in its Secret: whom it trusts, its certificate
// with what leads to the authority, and its private key.
func (a *Authority) PairData(p *Pair) (map[string][]byte, error) {
	key, err := encodeKey(p.key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{BundleKey: a.Bundle(), CertificateKey: p.Certificate(), PrivateKey: key}, nil
}

// ReadPair reads what PairData wrote. Whether it is to be trusted is for Due to say. The error is an
// *Error.
func ReadPair(data map[string][]byte) (*Pair, error) {
	chain, err := readCertificates(CertificateKey, data[CertificateKey])
	if err != nil {
		return nil, err
	}
	key, err := readKey(PrivateKey, data[PrivateKey], chain[0])
	if err != nil {
		return nil, err
	}
	return &Pair{chain: chain, key: key}, nil
}

// Keep is the authority of a Secret as it is to be from now on: as it is, rotated when that is
// due, or a new one where the Secret has none. Changed is true where the Secret is to be written.
// Where it has one that can't be read, the error is an *Error: nothing is made in its place.
func Keep(data map[string][]byte, now time.Time) (a *Authority, changed bool, err error) {
	if len(data) == 0 {
		a, err = NewAuthority(now)
		return a, true, err
	}
	if a, err = ReadAuthority(data, now); err != nil {
		return nil, false, err
	}
	if a.Aged(now) {
		a, err = a.Rotated(now)
		return a, true, err
	}
	return a, false, nil
}

// Renew is the certificate in a Secret as it is to be from now on: as it is, or issued anew
// where that is due or it can't be read.
func (a *Authority) Renew(data map[string][]byte, s Subject, now time.Time) (p *Pair, changed bool, err error) {
	if p, err = ReadPair(data); err == nil && !a.Due(p, s, now) {
		return p, !bytes.Equal(data[BundleKey], a.Bundle()), nil
	}
	p, err = a.Issue(s, now)
	return p, true, err
}
