package verify

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	sigstore "github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature/payload"

	"github.com/ksctl/gitops/stacks/artifact/oci"
)

// Cosign up to version 2 writes an artifact under a tag that is derived from the digest, with
// one layer per signature and the signature in the annotations of the layer.
const (
	simpleSigningType     = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation   = "dev.cosignproject.cosign/signature"
	certificateAnnotation = "dev.sigstore.cosign/certificate"
	logAnnotation         = "dev.sigstore.cosign/bundle"
	timestampAnnotation   = "dev.sigstore.cosign/rfc3161timestamp"
)

// verifyTagged verifies the signatures under the tag sha256-<hex>.sig. It returns an empty
// signer if none is valid.
func (c *Cosign) verifyTagged(ctx context.Context, repo *oci.Repository, sum string, t *failures) (string, error) {
	m, err := repo.ManifestByTag(ctx, "sha256-"+sum+".sig")
	if oci.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for i, layer := range m.Layers {
		if layer.MediaType != simpleSigningType {
			continue
		}
		if t.count >= maxSignatures {
			break
		}
		signer, err := c.verifyLayer(ctx, repo, layer, sum)
		if err == nil {
			return signer, nil
		}
		if err := t.add(fmt.Sprintf("%s layer %d", m.Digest, i), err); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (c *Cosign) verifyLayer(ctx context.Context, repo *oci.Repository, layer v1.Descriptor,
	sum string) (string, error) {
	payloadJSON, err := repo.Blob(ctx, layer, maxSignatureBytes)
	if err != nil {
		return "", err
	}
	var b *bundle.Bundle
	err = recoverPanic(func() (err error) {
		b, err = toBundle(payloadJSON, layer.Annotations, c.anchors[0].name != "")
		return err
	})
	if err != nil {
		return "", err
	}
	return c.verifyBundle(b, contentPolicy(payloadJSON), func(*sigstore.VerificationResult) error {
		return checkPayload(payloadJSON, sum)
	})
}

// checkPayload checks that the signed payload names the digest of the artifact.
func checkPayload(signed []byte, sum string) error {
	var p payload.SimpleContainerImage
	if err := json.Unmarshal(signed, &p); err != nil {
		return errors.New("the signed content is not a Cosign payload")
	}
	if p.Critical.Type != payload.CosignSignatureType {
		return fmt.Errorf("the signed payload has the type %.80q, expected %q", p.Critical.Type,
			payload.CosignSignatureType)
	}
	if got := p.Critical.Image.DockerManifestDigest; got != "sha256:"+sum {
		return fmt.Errorf("the signature is for another artifact, %.80q", got)
	}
	return nil
}

// toBundle converts a signature to a Sigstore bundle. It copies only values that are verified
// afterwards.
func toBundle(signed []byte, annotations map[string]string, byKey bool) (*bundle.Bundle, error) {
	sig, err := base64.StdEncoding.DecodeString(annotations[signatureAnnotation])
	if err != nil || len(sig) == 0 {
		return nil, fmt.Errorf("the annotation %s contains no signature", signatureAnnotation)
	}
	sum := sha256.Sum256(signed)
	b := &protobundle.Bundle{
		MediaType:            bundleType + "+json;version=0.1",
		VerificationMaterial: &protobundle.VerificationMaterial{},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]},
			Signature:     sig,
		}},
	}
	if byKey {
		b.VerificationMaterial.Content = &protobundle.VerificationMaterial_PublicKey{
			PublicKey: &protocommon.PublicKeyIdentifier{}}
		return bundle.NewBundle(b)
	}
	if err := addCertificate(b.VerificationMaterial, annotations); err != nil {
		return nil, err
	}
	return bundle.NewBundle(b)
}

// addCertificate adds the certificate, the log entry and the timestamp of a signature.
func addCertificate(m *protobundle.VerificationMaterial, annotations map[string]string) error {
	certificates, err := cryptoutils.UnmarshalCertificatesFromPEM([]byte(annotations[certificateAnnotation]))
	if err != nil || len(certificates) == 0 {
		return errors.New("the signature has no certificate")
	}
	m.Content = &protobundle.VerificationMaterial_X509CertificateChain{
		X509CertificateChain: &protocommon.X509CertificateChain{
			Certificates: []*protocommon.X509Certificate{{RawBytes: certificates[0].Raw}},
		}}
	if annotation := annotations[logAnnotation]; annotation != "" {
		entry := parseLogEntry(annotation)
		if entry == nil {
			return fmt.Errorf("the annotation %s is not well-formed", logAnnotation)
		}
		m.TlogEntries = []*protorekor.TransparencyLogEntry{entry}
	}
	if annotation := annotations[timestampAnnotation]; annotation != "" {
		var stamp struct{ SignedRFC3161Timestamp []byte }
		if err := json.Unmarshal([]byte(annotation), &stamp); err != nil {
			return fmt.Errorf("the annotation %s is not well-formed", timestampAnnotation)
		}
		m.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: stamp.SignedRFC3161Timestamp}},
		}
	}
	return nil
}

// parseLogEntry parses a transparency log entry in the format of a Cosign annotation. It returns
// nil for other annotations.
func parseLogEntry(annotation string) *protorekor.TransparencyLogEntry {
	var entry struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if json.Unmarshal([]byte(annotation), &entry) != nil || json.Unmarshal(entry.Payload.Body, &kind) != nil {
		return nil
	}
	id, err := hex.DecodeString(entry.Payload.LogID)
	if err != nil {
		return nil
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex: entry.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: id},
		IntegratedTime:    entry.Payload.IntegratedTime,
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version},
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: entry.SignedEntryTimestamp},
		CanonicalizedBody: entry.Payload.Body,
	}
}
