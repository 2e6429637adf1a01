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

// What Cosign up to version 2 writes: an artifact under a tag that is made from
// the digest, a layer for each signature, and the signature in annotations.
const (
	simpleSigningType     = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation   = "dev.cosignproject.cosign/signature"
	certificateAnnotation = "dev.sigstore.cosign/certificate"
	logAnnotation         = "dev.sigstore.cosign/bundle"
	timestampAnnotation   = "dev.sigstore.cosign/rfc3161timestamp"
)

// beside looks for signatures under the tag sha256-<hex>.sig.
func (c *Cosign) beside(ctx context.Context, repo *oci.Repository, sum string, t *tally) (string, error) {
	m, err := repo.Tagged(ctx, "sha256-"+sum+".sig")
	if oci.NotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for i, layer := range m.Layers {
		if layer.MediaType != simpleSigningType {
			continue
		}
		if t.found >= maxSignatures {
			break
		}
		signer, err := c.simple(ctx, repo, layer, sum)
		if err == nil {
			return signer, nil
		}
		if err := t.add(fmt.Sprintf("%s layer %d", m.Digest, i), err); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (c *Cosign) simple(ctx context.Context, repo *oci.Repository, layer v1.Descriptor, sum string) (string, error) {
	signed, err := repo.Blob(ctx, layer, signatureBytes)
	if err != nil {
		return "", err
	}
	var b *bundle.Bundle
	err = guard(func() (err error) {
		b, err = asBundle(signed, layer.Annotations, c.anchors[0].name != "")
		return err
	})
	if err != nil {
		return "", err
	}
	return c.judge(b, claim{policy: ofBytes(signed), check: func(*sigstore.VerificationResult) error { return names(signed, sum) }})
}

// names checks that what was signed names the artifact.
func names(signed []byte, sum string) error {
	var p payload.SimpleContainerImage
	if err := json.Unmarshal(signed, &p); err != nil {
		return errors.New("what was signed is not a payload of Cosign")
	}
	if p.Critical.Type != payload.CosignSignatureType {
		return fmt.Errorf("what was signed is of type %.80q, expected %q", p.Critical.Type, payload.CosignSignatureType)
	}
	if got := p.Critical.Image.DockerManifestDigest; got != "sha256:"+sum {
		return fmt.Errorf("it is of another artifact, %.80q", got)
	}
	return nil
}

// asBundle puts a signature into the form of a Sigstore bundle. Only what is
// verified afterwards is taken over.
func asBundle(signed []byte, annotations map[string]string, byKey bool) (*bundle.Bundle, error) {
	sig, err := base64.StdEncoding.DecodeString(annotations[signatureAnnotation])
	if err != nil || len(sig) == 0 {
		return nil, fmt.Errorf("the annotation %s holds no signature", signatureAnnotation)
	}
	sum := sha256.Sum256(signed)
	b := &protobundle.Bundle{
		MediaType:            bundleType + "+json;version=0.1",
		VerificationMaterial: &protobundle.VerificationMaterial{},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: sig,
		}},
	}
	if byKey {
		b.VerificationMaterial.Content = &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}}
		return bundle.NewBundle(b)
	}
	if err := identify(b.VerificationMaterial, annotations); err != nil {
		return nil, err
	}
	return bundle.NewBundle(b)
}

// identify adds the certificate, and what says when it was used.
func identify(m *protobundle.VerificationMaterial, annotations map[string]string) error {
	certificates, err := cryptoutils.UnmarshalCertificatesFromPEM([]byte(annotations[certificateAnnotation]))
	if err != nil || len(certificates) == 0 {
		return errors.New("it has no certificate")
	}
	m.Content = &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{
		Certificates: []*protocommon.X509Certificate{{RawBytes: certificates[0].Raw}},
	}}
	if said := annotations[logAnnotation]; said != "" {
		entry, err := logEntry(said)
		if err != nil {
			return fmt.Errorf("the annotation %s is not well-formed", logAnnotation)
		}
		m.TlogEntries = []*protorekor.TransparencyLogEntry{entry}
	}
	if said := annotations[timestampAnnotation]; said != "" {
		var stamp struct{ SignedRFC3161Timestamp []byte }
		if err := json.Unmarshal([]byte(said), &stamp); err != nil {
			return fmt.Errorf("the annotation %s is not well-formed", timestampAnnotation)
		}
		m.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: stamp.SignedRFC3161Timestamp}},
		}
	}
	return nil
}

// logEntry reads an entry of a transparency log as Cosign writes it down.
func logEntry(said string) (*protorekor.TransparencyLogEntry, error) {
	var entry struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	if err := json.Unmarshal([]byte(said), &entry); err != nil {
		return nil, err
	}
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if err := json.Unmarshal(entry.Payload.Body, &kind); err != nil {
		return nil, err
	}
	id, err := hex.DecodeString(entry.Payload.LogID)
	if err != nil {
		return nil, err
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex: entry.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: id}, IntegratedTime: entry.Payload.IntegratedTime,
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version},
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: entry.SignedEntryTimestamp},
		CanonicalizedBody: entry.Payload.Body,
	}, nil
}
