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

// TrustedRootKey is the name of a trusted root in a Secret.
const TrustedRootKey = "trusted_root.json"

// keySuffix ends the names of public keys in a Secret.
const keySuffix = ".pub"

// Cosign verifies signatures of Cosign: those beside the artifact under the tag
// sha256-<hex>.sig, and the bundles that refer to it.
type Cosign struct {
	trusted string
	anchors []anchor
}

// anchor is somebody who is trusted.
type anchor struct {
	// name of the key; the certificate says who it is when empty.
	name     string
	verifier *sigstore.Verifier
	policy   []sigstore.PolicyOption
}

// Identity selects certificates by regular expressions.
type Identity struct {
	Issuer, Subject string
}

// NewCosignKeys trusts the public keys of a Secret: its entries *.pub, PEM. The
// transparency log is not looked at: whoever has a key is trusted whenever it
// was used. The error is an *Error.
func NewCosignKeys(secret map[string][]byte) (*Cosign, error) {
	c := &Cosign{}
	for _, name := range slices.Sorted(maps.Keys(secret)) {
		if !strings.HasSuffix(name, keySuffix) {
			continue
		}
		key, err := cryptoutils.UnmarshalPEMToPublicKey(secret[name])
		if err != nil {
			return nil, fail(MaterialInvalid, "the entry %q is not a public key in PEM form", name)
		}
		one, err := signature.LoadVerifier(key, crypto.SHA256)
		if err != nil {
			return nil, fail(MaterialInvalid, "the entry %q holds a key that Cosign does not sign with: %s", name, err)
		}
		held := root.NewExpiringKey(one, time.Time{}, time.Time{})
		material := root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) { return held, nil })
		v, err := sigstore.NewVerifier(material, sigstore.WithNoObserverTimestamps(), sigstore.WithoutStatementPredicate())
		if err != nil {
			return nil, fail(MaterialInvalid, "the entry %q: %s", name, err)
		}
		c.anchors = append(c.anchors, anchor{name: name, verifier: v, policy: []sigstore.PolicyOption{sigstore.WithKey()}})
	}
	if len(c.anchors) == 0 {
		return nil, fail(MaterialInvalid, "there is no public key: put one in under a name that ends with %s", keySuffix)
	}
	c.trusted = "a key that is trusted"
	return c, nil
}

// NewCosignKeyless trusts identities whose certificates come from an authority
// of a trusted root (the content of a trusted_root.json). A signature must stand
// in one of the root's transparency logs, and its certificate in one of the
// root's certificate logs, if the root has any; a log or a timestamp authority
// of the root must say when it was made. The error is an *Error.
func NewCosignKeyless(trustedRoot []byte, identities []Identity) (*Cosign, error) {
	material, err := root.NewTrustedRootFromJSON(trustedRoot)
	if err != nil {
		return nil, fail(MaterialInvalid, "the trusted root is not well-formed: %.300s", err)
	}
	logs, authorities := len(material.RekorLogs()), len(material.TimestampingAuthorities())
	if len(material.FulcioCertificateAuthorities()) == 0 {
		return nil, fail(MaterialInvalid, "the trusted root names no certificate authority")
	}
	if logs+authorities == 0 {
		return nil, fail(MaterialInvalid, "the trusted root names neither a transparency log nor a timestamp authority, one of which must say when a signature was made")
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
		return nil, fail(MaterialInvalid, "the trusted root can't be used: %s", err)
	}
	if len(identities) == 0 {
		return nil, fail(MaterialInvalid, "there is no identity: say in matchOIDCIdentity whose signatures to trust")
	}
	one := anchor{verifier: v}
	for i, id := range identities {
		matcher, err := sigstore.NewShortCertificateIdentity("", id.Issuer, "", id.Subject)
		if err != nil {
			return nil, fail(MaterialInvalid, "matchOIDCIdentity[%d]: issuer and subject must be regular expressions: %s", i, err)
		}
		one.policy = append(one.policy, sigstore.WithCertificateIdentity(matcher))
	}
	return &Cosign{trusted: "an identity that is trusted", anchors: []anchor{one}}, nil
}

// Verify implements Verifier.
func (c *Cosign) Verify(ctx context.Context, repo *oci.Repository, digest string) (string, error) {
	sum, err := artifact.ParseDigest(digest)
	if err != nil {
		return "", err
	}
	t := &tally{what: repo.String() + "@" + digest}
	for _, search := range []func(context.Context, *oci.Repository, string, *tally) (string, error){c.beside, c.referring} {
		signer, err := search(ctx, repo, sum, t)
		if signer != "" || err != nil {
			return signer, err
		}
	}
	return "", t.verdict(c.trusted)
}

// claim is what a signature must be of.
type claim struct {
	policy func() sigstore.ArtifactPolicyOption
	// check looks at what was signed, once the signature was found right.
	check func(*sigstore.VerificationResult) error
}

func ofBytes(b []byte) func() sigstore.ArtifactPolicyOption {
	return func() sigstore.ArtifactPolicyOption { return sigstore.WithArtifact(bytes.NewReader(b)) }
}

func ofDigest(sum string) (func() sigstore.ArtifactPolicyOption, error) {
	raw, err := hex.DecodeString(sum)
	return func() sigstore.ArtifactPolicyOption { return sigstore.WithArtifactDigest("sha256", raw) }, err
}

// judge gives the name of who made a signature, if that is somebody trusted.
func (c *Cosign) judge(b *bundle.Bundle, of claim) (string, error) {
	var last error
	for _, a := range c.anchors {
		var signer string
		err := guard(func() error {
			result, err := a.verifier.Verify(b, sigstore.NewPolicy(of.policy(), a.policy...))
			if err != nil {
				return err
			}
			signer = a.signer(result)
			return of.check(result)
		})
		if err == nil {
			return signer, nil
		}
		last = err
	}
	return "", last
}

func (a anchor) signer(r *sigstore.VerificationResult) string {
	if a.name != "" {
		return fmt.Sprintf("the key %q", a.name)
	}
	who := r.Signature.Certificate
	return fmt.Sprintf("%.200q of %.200q", who.SubjectAlternativeName, who.Issuer)
}
