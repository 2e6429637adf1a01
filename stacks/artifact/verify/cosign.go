package verify

import (
	"bytes"
	"context"
	"crypto"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	sigstore "github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

// TrustedRootKey is the key of the trusted root in a Secret.
const TrustedRootKey = "trusted_root.json"

// keySuffix is the suffix of the keys of a Secret that hold public keys.
const keySuffix = ".pub"

// Cosign verifies Cosign signatures: those under the tag sha256-<hex>.sig, and the bundles
// that refer to the artifact.
type Cosign struct {
	trustedSigner string
	anchors       []trustAnchor
}

// trustAnchor is a trusted key, or a trusted root with the trusted identities.
type trustAnchor struct {
	// name of the key; empty for identities, which the certificate of a signature names.
	name     string
	verifier *sigstore.Verifier
	policy   []sigstore.PolicyOption
}

// Identity selects certificates by regular expressions for issuer and subject.
type Identity struct {
	Issuer, Subject string
}

// NewCosignKeys returns a verifier that trusts the public keys of a Secret: its entries *.pub,
// in PEM. It does not check a transparency log: a signature by a key is trusted whenever it
// was made. The error is an *Error.
func NewCosignKeys(secret map[string][]byte) (*Cosign, error) {
	c := &Cosign{}
	for _, name := range slices.Sorted(maps.Keys(secret)) {
		if !strings.HasSuffix(name, keySuffix) {
			continue
		}
		key, err := cryptoutils.UnmarshalPEMToPublicKey(secret[name])
		if err != nil {
			return nil, newError(MaterialInvalid, "the entry %q is not a public key in PEM format", name)
		}
		verifier, err := signature.LoadVerifier(key, crypto.SHA256)
		if err != nil {
			return nil, newError(MaterialInvalid, "the entry %q has a key type that Cosign does not support: %s", name,
				err)
		}
		expiringKey := root.NewExpiringKey(verifier, time.Time{}, time.Time{})
		material := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
			return expiringKey, nil
		})
		v, err := sigstore.NewVerifier(material, sigstore.WithNoObserverTimestamps(),
			sigstore.WithoutStatementPredicate())
		if err != nil {
			return nil, newError(MaterialInvalid, "the entry %q: %s", name, err)
		}
		c.anchors = append(c.anchors,
			trustAnchor{name: name, verifier: v, policy: []sigstore.PolicyOption{sigstore.WithKey()}})
	}
	if len(c.anchors) == 0 {
		return nil, newError(MaterialInvalid, "there is no public key: add one with a name that ends with %s",
			keySuffix)
	}
	c.trustedSigner = "a trusted key"
	return c, nil
}

// NewCosignKeyless returns a verifier that trusts identities with certificates of an authority
// of a trusted root (the content of a trusted_root.json). If the root has transparency logs,
// one of them must contain the signature. If the root has certificate logs, one of them must
// contain the certificate. A log or a timestamp authority of the root must confirm the time
// of signing. The error is an *Error.
func NewCosignKeyless(trustedRoot []byte, identities []Identity) (*Cosign, error) {
	material, err := root.NewTrustedRootFromJSON(trustedRoot)
	if err != nil {
		return nil, newError(MaterialInvalid, "the trusted root is not well-formed: %.300s", err)
	}
	logs, authorities := len(material.RekorLogs()), len(material.TimestampingAuthorities())
	if len(material.FulcioCertificateAuthorities()) == 0 {
		return nil, newError(MaterialInvalid, "the trusted root has no certificate authority")
	}
	if logs+authorities == 0 {
		return nil, newError(MaterialInvalid,
			"the trusted root has neither a transparency log nor a timestamp authority: add one, to confirm when "+
				"signatures were made")
	}
	options := []sigstore.VerifierOption{sigstore.WithObserverTimestamps(1), sigstore.WithoutStatementPredicate()}
	if logs > 0 {
		options = append(options, sigstore.WithTransparencyLog(1))
	}
	if len(material.CTLogs()) > 0 {
		options = append(options, sigstore.WithSignedCertificateTimestamps(1))
	}
	v, err := sigstore.NewVerifier(material, options...)
	if err != nil {
		return nil, newError(MaterialInvalid, "the trusted root can't be used: %s", err)
	}
	if len(identities) == 0 {
		return nil, newError(MaterialInvalid, "there is no identity: add the trusted identities to matchOIDCIdentity")
	}
	rootAnchor := trustAnchor{verifier: v}
	for i, id := range identities {
		matcher, err := sigstore.NewShortCertificateIdentity("", id.Issuer, "", id.Subject)
		if err != nil {
			return nil, newError(MaterialInvalid,
				"matchOIDCIdentity[%d]: issuer and subject must be regular expressions: %s", i, err)
		}
		rootAnchor.policy = append(rootAnchor.policy, sigstore.WithCertificateIdentity(matcher))
	}
	return &Cosign{trustedSigner: "a trusted identity", anchors: []trustAnchor{rootAnchor}}, nil
}

// Verify implements Verifier.
func (c *Cosign) Verify(ctx context.Context, repo *oci.Repository, digest string) (string, error) {
	sum, err := artifact.ParseDigest(digest)
	if err != nil {
		return "", err
	}
	t := &failures{artifact: repo.String() + "@" + digest}
	signer, err := c.verifyTagged(ctx, repo, sum, t)
	if signer == "" && err == nil {
		signer, err = c.verifyReferrers(ctx, repo, sum, t)
	}
	if signer == "" && err == nil {
		err = t.toError(c.trustedSigner)
	}
	return signer, err
}

func contentPolicy(b []byte) func() sigstore.ArtifactPolicyOption {
	return func() sigstore.ArtifactPolicyOption { return sigstore.WithArtifact(bytes.NewReader(b)) }
}

// digestPolicy requires a digest, which artifact.ParseDigest has validated.
func digestPolicy(sum string) func() sigstore.ArtifactPolicyOption {
	raw, _ := hex.DecodeString(sum)
	return func() sigstore.ArtifactPolicyOption { return sigstore.WithArtifactDigest("sha256", raw) }
}

// verifyBundle verifies a signature and returns its signer, if a trust anchor accepts it. The
// policy selects what it must sign; check inspects the signed content after the signature was
// verified.
func (c *Cosign) verifyBundle(b *bundle.Bundle, policy func() sigstore.ArtifactPolicyOption,
	check func(*sigstore.VerificationResult) error) (string, error) {
	var lastErr error
	for _, a := range c.anchors {
		var signer string
		err := recoverPanic(func() error {
			result, err := a.verifier.Verify(b, sigstore.NewPolicy(policy(), a.policy...))
			if err != nil {
				return err
			}
			signer = a.signer(result)
			return check(result)
		})
		if err == nil {
			return signer, nil
		}
		lastErr = err
	}
	return "", lastErr
}

func (a trustAnchor) signer(r *sigstore.VerificationResult) string {
	if a.name != "" {
		return fmt.Sprintf("the key %q", a.name)
	}
	certificate := r.Signature.Certificate
	return fmt.Sprintf("%.200q of %.200q", certificate.SubjectAlternativeName, certificate.Issuer)
}
