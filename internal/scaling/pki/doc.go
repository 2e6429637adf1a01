// Package pki issues the certificates with which Cluster Autoscaler and the node group server
// authenticate each other: a certificate authority, the server certificate, and one client
// certificate per autoscaler. It reads and writes the data of Secrets. It makes no API requests;
// callers pass the current time.
//
// Rotating the authority does not break peers that trust only the previous one: the bundle contains
// both authorities, and every certificate that the new authority issues comes with the new
// authority's certificate cross-signed by the previous one.
package pki

import (
	"crypto/x509"
	"fmt"
	"time"
)

// Validity of certificates. Each certificate is renewed after two thirds of its validity.
const (
	// AuthorityValidity is the validity of the authority's certificate.
	AuthorityValidity = 365 * 24 * time.Hour
	// LeafValidity is the validity of a server or client certificate.
	LeafValidity = 30 * 24 * time.Hour
	// ClockSkew is the tolerated clock difference: certificates are valid from this long before
	// they are issued.
	ClockSkew = 5 * time.Minute
)

// Keys of the Secrets: the keys of type kubernetes.io/tls, and ca.crt.
const (
	// BundleKey holds the trusted certificates: the current and the previous authority.
	BundleKey = "ca.crt"
	// CertificateKey holds a certificate followed by its intermediate certificates.
	CertificateKey = "tls.crt"
	// PrivateKey holds the private key of the certificate.
	PrivateKey = "tls.key"
)

// Error describes an invalid certificate, private key or subject. It never quotes their content.
type Error struct {
	// Field is the invalid field, such as a key of a Secret; it may be empty.
	Field string
	// Message describes the problem to users.
	Message string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

func errorf(field, format string, args ...any) error {
	return &Error{Field: field, Message: fmt.Sprintf(format, args...)}
}

// renewAt returns the time at which two thirds of a certificate's validity have passed.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2)
}

// renewalDue reports whether a certificate is due for renewal or is not valid yet.
func renewalDue(c *x509.Certificate, now time.Time) bool {
	return now.Before(c.NotBefore) || !now.Before(renewAt(c))
}
