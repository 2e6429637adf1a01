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
	// bundleType is the prefix of the media types of Sigstore bundles.
	bundleType = "application/vnd.dev.sigstore.bundle"
	// signPredicate is the predicate type of "cosign sign"; other attestations, such as a
	// bill of materials, are not signatures.
	signPredicate = "https://sigstore.dev/cosign/sign/v1"
	// predicateAnnotation holds the predicate type in the descriptor, before the content is
	// fetched.
	predicateAnnotation = "dev.sigstore.bundle.predicateType"
)

// verifyReferrers verifies the bundles that refer to the artifact, as Cosign 3 creates them. It
// returns an empty signer if none is valid.
func (c *Cosign) verifyReferrers(ctx context.Context, repo *oci.Repository, sum string, t *failures) (string, error) {
	found, err := repo.Referrers(ctx, "sha256:"+sum)
	if err != nil {
		return "", err
	}
	for _, d := range found {
		if !strings.HasPrefix(d.ArtifactType, bundleType) || d.Annotations[predicateAnnotation] != "" &&
			d.Annotations[predicateAnnotation] != signPredicate {
			continue
		}
		if t.count >= maxSignatures {
			break
		}
		signer, err := c.fetchAndVerifyBundle(ctx, repo, d, sum)
		if err == nil {
			return signer, nil
		}
		if err := t.add(d.Digest.String(), err); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (c *Cosign) fetchAndVerifyBundle(ctx context.Context, repo *oci.Repository, d v1.Descriptor,
	sum string) (string, error) {
	m, err := repo.Manifest(ctx, d.Digest.String())
	if err != nil {
		return "", err
	}
	if len(m.Layers) != 1 || !strings.HasPrefix(string(m.Layers[0].MediaType), bundleType) {
		return "", errors.New("the signature manifest does not contain exactly one bundle")
	}
	raw, err := repo.Blob(ctx, m.Layers[0], maxSignatureBytes)
	if err != nil {
		return "", err
	}
	var b bundle.Bundle
	if err := recoverPanic(func() error { return b.UnmarshalJSON(raw) }); err != nil {
		return "", fmt.Errorf("the bundle can't be read: %w", err)
	}
	return c.verifyBundle(&b, digestPolicy(sum), checkPredicate)
}

func checkPredicate(r *sigstore.VerificationResult) error {
	if r.Statement == nil || r.Statement.PredicateType != signPredicate {
		return errors.New("the bundle is an attestation, not a signature")
	}
	return nil
}
