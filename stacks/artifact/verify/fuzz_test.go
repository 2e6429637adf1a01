package verify

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"testing"

	sigstore "github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/ksctl/gitops/e2e/cluster/signatures"
)

// FuzzSignature checks that arbitrary signatures under a tag cause no panic and are never
// valid.
func FuzzSignature(f *testing.F) {
	k, err := signatures.NewKey()
	if err != nil {
		f.Fatal(err)
	}
	pem, err := k.PEM()
	if err != nil {
		f.Fatal(err)
	}
	c, err := NewCosignKeys(map[string][]byte{"a.pub": pem})
	if err != nil {
		f.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(nil))
	f.Add([]byte(`{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":"sha256:`+sum+
		`"},"type":"cosign container image signature"}}`),
		base64.StdEncoding.EncodeToString([]byte("signature")),
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		`{"SignedEntryTimestamp":"AAAA","Payload":{"body":"e30=","integratedTime":1,"logIndex":1,"logID":"00"}}`,
		`{"SignedRFC3161Timestamp":"AAAA"}`, true)
	f.Fuzz(func(t *testing.T, signed []byte, sig, certificate, log, stamp string, byKey bool) {
		b, err := toBundle(signed, map[string]string{
			signatureAnnotation: sig, certificateAnnotation: certificate, logAnnotation: log,
			timestampAnnotation: stamp,
		}, byKey)
		if err != nil {
			return
		}
		signer, err := c.verifyBundle(b, contentPolicy(signed), func(*sigstore.VerificationResult) error {
			return checkPayload(signed, sum)
		})
		if err == nil {
			t.Errorf("accepted a signature by %s", signer)
		}
	})
}
