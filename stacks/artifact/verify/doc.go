// Package verify tells whether an artifact in an OCI registry was signed by
// somebody who is trusted: with Cosign, by a key or by an identity that a
// trusted root vouches for, or with Notation, by a certificate.
//
// It fails closed: an artifact without a signature, a signature that can't be
// read or fetched, a registry that does not answer are errors. One valid
// signature is enough, however many others there are. Nothing is asked but the
// registry, except for the revocation lists and responders that the certificates
// of a Notation signature name.
package verify
