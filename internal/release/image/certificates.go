package image

import (
	"bytes"
	"encoding/pem"
	"errors"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificatesPath is the first place where crypto/x509 looks on Linux
// (root_linux.go).
const certificatesPath = "etc/ssl/certs/ca-certificates.crt"

// certificates are Mozilla's roots, of the version in go.sum. A root that is
// trusted with a condition is left out: a file can't say it.
func certificates() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	if out.Len() == 0 {
		return nil, errors.New("no root certificates")
	}
	return out.Bytes(), nil
}
