package signatures

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	sigdsse "github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	simpleSigningType = "application/vnd.dev.cosign.simplesigning.v1+json"
	bundleType        = "application/vnd.dev.sigstore.bundle.v0.3+json"
	statementType     = "application/vnd.in-toto+json"
	// SignPredicate is the predicate type of a signature by Cosign 3.
	SignPredicate = "https://sigstore.dev/cosign/sign/v1"
)

// Key signs as Cosign does with a private key.
type Key struct {
	signer signature.SignerVerifier
	public crypto.PublicKey
}

// NewKey generates a key.
func NewKey() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signer, err := signature.LoadSignerVerifier(private, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	return &Key{signer: signer, public: private.Public()}, nil
}

// PEM returns the public key.
func (k *Key) PEM() ([]byte, error) { return cryptoutils.MarshalPublicKeyToPEM(k.public) }

// SignWithTag signs as Cosign up to version 2 does: the signature is an image with the tag
// sha256-<digest>.sig.
func (k *Key) SignWithTag(ctx context.Context, a Artifact) error {
	signed, err := simplePayload(a)
	if err != nil {
		return err
	}
	sig, err := k.signer.SignMessage(bytes.NewReader(signed))
	if err != nil {
		return err
	}
	return pushSignatureTag(ctx, a, signed, sig, nil)
}

// SignWithReferrer signs as Cosign 3 does: the signature is a bundle that refers to the artifact.
func (k *Key) SignWithReferrer(ctx context.Context, a Artifact) error {
	return k.Attest(ctx, a, SignPredicate)
}

// Attest pushes a signed in-toto statement about the artifact. With a predicate type other than
// [SignPredicate] the statement is no signature.
func (k *Key) Attest(ctx context.Context, a Artifact, predicate string) error {
	signed, err := statement(a, predicate)
	if err != nil {
		return err
	}
	signer, err := dsse.NewEnvelopeSigner(&sigdsse.SignerAdapter{SignatureSigner: k.signer, Pub: k.public})
	if err != nil {
		return err
	}
	envelope, err := signer.SignPayload(ctx, statementType, signed)
	if err != nil {
		return err
	}
	return pushBundle(ctx, a, envelope, &protobundle.VerificationMaterial{
		Content: &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{Hint: "any"}},
	})
}

// simplePayload returns the payload that Cosign up to version 2 signs.
func simplePayload(a Artifact) ([]byte, error) {
	digest, err := name.NewDigest(a.Repository + "@" + a.signedDigest())
	if err != nil {
		return nil, err
	}
	return json.Marshal(payload.Cosign{Image: digest})
}

// statement returns the in-toto statement that Cosign 3 signs.
func statement(a Artifact, predicate string) ([]byte, error) {
	algorithm, sum, _ := strings.Cut(a.signedDigest(), ":")
	return json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": predicate, "predicate": map[string]any{},
		"subject": []any{map[string]any{"digest": map[string]any{algorithm: sum}}},
	})
}

func pushSignatureTag(ctx context.Context, a Artifact, signed, sig []byte, annotations map[string]string) error {
	all := map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)}
	maps.Copy(all, annotations)
	tag, err := name.NewTag(a.Repository+":"+strings.Replace(a.Digest, ":", "-", 1)+".sig", name.Insecure)
	if err != nil {
		return err
	}
	if a.Tampered {
		if signed, err = simplePayload(a.pushed()); err != nil {
			return err
		}
	}
	// Each further signature is one more layer of the same image.
	image, err := remote.Image(tag, remote.WithContext(ctx))
	if err != nil {
		image = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: static.NewLayer(signed, simpleSigningType), Annotations: all})
	if err != nil {
		return err
	}
	return remote.Write(tag, image, remote.WithContext(ctx))
}

func pushBundle(ctx context.Context, a Artifact, e *dsse.Envelope, m *protobundle.VerificationMaterial) error {
	content, err := e.DecodeB64Payload()
	if err == nil && a.Tampered {
		content, err = statement(a.pushed(), SignPredicate)
	}
	if err != nil {
		return err
	}
	sig, err := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	if err != nil {
		return err
	}
	raw, err := protojson.Marshal(&protobundle.Bundle{
		MediaType: bundleType, VerificationMaterial: m,
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: content, PayloadType: e.PayloadType, Signatures: []*protodsse.Signature{{Sig: sig}},
		}},
	})
	if err != nil {
		return err
	}
	return a.pushReferrer(ctx, bundleType, raw, bundleType)
}
