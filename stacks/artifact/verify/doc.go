// Package verify checks that an artifact in an OCI registry has a trusted signature:
// a Cosign signature by a key or by an identity that a trusted root certifies, or a
// Notation signature by a certificate.
//
// It fails closed: a missing signature, a signature that can't be read or fetched, and an
// unavailable registry are errors. One valid signature is enough, however many others
// there are. The package connects only to the registry, and to the revocation lists and
// OCSP responders that the certificates of a Notation signature name.
package verify
