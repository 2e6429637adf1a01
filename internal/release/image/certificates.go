package image

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificatesPath is the first file that crypto/x509 reads on Linux (root_linux.go).
const certificatesPath = "etc/ssl/certs/ca-certificates.crt"

// rootCertificates returns Mozilla's root certificates as PEM, in the version pinned in go.sum. It
// omits roots with constraints, because a PEM file cannot express them.
func rootCertificates() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
	}
	if out.Len() == 0 {
		return nil, errors.New("no root certificates")
	}
	return out.Bytes(), nil
}
