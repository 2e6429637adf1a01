// Package pki makes the certificates by which Cluster Autoscaler and the node group server know
// each other: an authority, what the server shows, and what each autoscaler shows. It reads
// and writes the data of Secrets, and asks no API server; the time is passed in.
//
// A new authority does not shut out whoever knows the one before: the bundle has both, and what
// the new one issues is followed by its certificate of the one before.
package pki

import (
	"crypto/x509"
	"fmt"
	"time"
)

// How long certificates live. Each is renewed when two thirds of that are over.
const (
	// AuthorityLife is that of the authority.
	AuthorityLife = 365 * 24 * time.Hour
	// LeafLife is that of a certificate for a server or a client.
	LeafLife = 30 * 24 * time.Hour
	// Skew is how far clocks may differ: certificates are valid since so long before they were made.
	Skew = 5 * time.Minute
)

// Keys of the Secrets: those of kubernetes.io/tls, and ca.crt.
const (
	// BundleKey has the certificates that are trusted: of the authority, and of the one before.
	BundleKey = "ca.crt"
	// CertificateKey has a certificate and what leads to the authority.
	CertificateKey = "tls.crt"
	// PrivateKey has its private key.
	PrivateKey = "tls.key"
)

// Error says what is wrong with a certificate, a key, or who one is wanted for. It quotes no
// content.
type Error struct {
	// Field that is wrong, such as a key of a Secret; it may be empty.
	Field string
	// Message for people.
	Message string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

func refuse(field, format string, args ...any) error {
	return &Error{Field: field, Message: fmt.Sprintf(format, args...)}
}

// renewAt is when two thirds of a certificate's life are over.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2)
}

// aged is true for a certificate that is to be renewed, or is of a time to come.
func aged(c *x509.Certificate, now time.Time) bool {
	return now.Before(c.NotBefore) || !now.Before(renewAt(c))
}
