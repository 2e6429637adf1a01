package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	sigstore "github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/ksctl/gitops/stacks/artifact/oci"
)

const (
	// bundleType begins the media types of Sigstore's bundles.
	bundleType = "application/vnd.dev.sigstore.bundle"
	// signPredicate is what "cosign sign" attests; other attestations, such as a
	// bill of materials, are no signature.
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
	// predicateAnnotation repeats the predicate where no content was fetched yet.
	predicateAnnotation = "dev.sigstore.bundle.predicateType"
)

// referring looks for bundles that refer to the artifact, as Cosign 3 makes them.
func (c *Cosign) referring(ctx context.Context, repo *oci.Repository, sum string, t *tally) (string, error) {
	found, err := repo.Referrers(ctx, "sha256:"+sum)
	if err != nil {
		return "", err
	}
	policy, err := ofDigest(sum)
	if err != nil {
		return "", err
	}
	of := claim{policy: policy, check: isSignature}
	for _, d := range found {
		if !strings.HasPrefix(d.ArtifactType, bundleType) || d.Annotations[predicateAnnotation] != "" && d.Annotations[predicateAnnotation] != signPredicate {
			continue
		}
		if t.found >= maxSignatures {
			break
		}
		signer, err := c.bundle(ctx, repo, d, of)
		if err == nil {
			return signer, nil
		}
		if err := t.add(d.Digest.String(), err); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (c *Cosign) bundle(ctx context.Context, repo *oci.Repository, d v1.Descriptor, of claim) (string, error) {
	m, err := repo.Manifest(ctx, d.Digest.String())
	if err != nil {
		return "", err
	}
	if len(m.Layers) != 1 || !strings.HasPrefix(string(m.Layers[0].MediaType), bundleType) {
		return "", errors.New("it does not hold one bundle")
	}
	raw, err := repo.Blob(ctx, m.Layers[0], signatureBytes)
	if err != nil {
		return "", err
	}
	var b bundle.Bundle
	if err := guard(func() error { return b.UnmarshalJSON(raw) }); err != nil {
		return "", fmt.Errorf("the bundle can't be read: %w", err)
	}
	return c.judge(&b, of)
}

func isSignature(r *sigstore.VerificationResult) error {
	if r.Statement == nil || r.Statement.PredicateType != signPredicate {
		return errors.New("an attestation of something else, not a signature")
	}
	return nil
}
