package verify

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/notaryproject/notation-core-go/revocation"
	"github.com/notaryproject/notation-core-go/revocation/crl"
	"github.com/notaryproject/notation-core-go/revocation/purpose"
	"github.com/notaryproject/notation-go"
	"github.com/notaryproject/notation-go/verifier"
	"github.com/notaryproject/notation-go/verifier/trustpolicy"
	"github.com/notaryproject/notation-go/verifier/truststore"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

const (
	// PolicyName is the entry of a Secret that holds the trust policy.
	PolicyName = "trustpolicy.json"
	// notationType is what signatures of Notation are.
	notationType = "application/vnd.cncf.notary.signature"
	// revocationTimeout is how long one revocation list or responder may take.
	revocationTimeout = 5 * time.Second
)

// Notation verifies signatures of the Notary Project.
type Notation struct {
	policy   *trustpolicy.Document
	verifier notation.Verifier
}

// NewNotation trusts the certificates of a Secret (its entries *.crt and *.pem,
// in every trust store that the policy names) as its trust policy
// (trustpolicy.json) says. A policy that accepts signatures by anybody is
// refused. Client asks for revocation lists and responders, where certificates
// name some; artifact.NewHTTPClient when nil. The error is an *Error.
func NewNotation(secret map[string][]byte, client *http.Client) (*Notation, error) {
	policy, err := readPolicy(secret[PolicyName])
	if err != nil {
		return nil, err
	}
	certificates, err := readCertificates(secret)
	if err != nil {
		return nil, err
	}
	if client == nil {
		client = artifact.NewHTTPClient()
		client.Timeout = revocationTimeout
	}
	options, err := revocations(client)
	if err != nil {
		return nil, fail(MaterialInvalid, "revocation can't be checked: %s", err)
	}
	// No plugins: a signature that needs one is refused.
	v, err := verifier.NewWithOptions(policy, certificates, nil, options)
	if err != nil {
		return nil, fail(MaterialInvalid, "the trust policy can't be used: %.300s", err)
	}
	return &Notation{policy: policy, verifier: v}, nil
}

func readPolicy(raw []byte) (*trustpolicy.Document, error) {
	if len(raw) == 0 {
		return nil, fail(MaterialInvalid, "there is no trust policy: put one in under the name %s", PolicyName)
	}
	policy := &trustpolicy.Document{}
	if err := json.Unmarshal(raw, policy); err != nil {
		return nil, fail(MaterialInvalid, "%s is not well-formed: %.300s", PolicyName, err)
	}
	if err := policy.Validate(); err != nil {
		return nil, fail(MaterialInvalid, "%s is not valid: %.300s", PolicyName, err)
	}
	for _, p := range policy.TrustPolicies {
		level, err := p.SignatureVerification.GetVerificationLevel()
		if err != nil {
			return nil, fail(MaterialInvalid, "%s: policy %.80q: %.300s", PolicyName, p.Name, err)
		}
		for _, must := range []trustpolicy.ValidationType{trustpolicy.TypeIntegrity, trustpolicy.TypeAuthenticity} {
			if level.Enforcement[must] != trustpolicy.ActionEnforce {
				return nil, fail(MaterialInvalid, "%s: policy %.80q does not enforce %s, so that anybody's signature would do: use level strict or permissive",
					PolicyName, p.Name, must)
			}
		}
	}
	return policy, nil
}

func revocations(client *http.Client) (o verifier.VerifierOptions, err error) {
	fetcher, err := crl.NewHTTPFetcher(client)
	if err != nil {
		return o, err
	}
	with := func(p purpose.Purpose) (revocation.Validator, error) {
		return revocation.NewWithOptions(revocation.Options{OCSPHTTPClient: client, CRLFetcher: fetcher, CertChainPurpose: p})
	}
	if o.RevocationCodeSigningValidator, err = with(purpose.CodeSigning); err != nil {
		return o, err
	}
	o.RevocationTimestampingValidator, err = with(purpose.Timestamping)
	return o, err
}

// store offers the same certificates as every trust store.
type store []*x509.Certificate

// GetCertificates implements truststore.X509TrustStore.
func (s store) GetCertificates(context.Context, truststore.Type, string) ([]*x509.Certificate, error) {
	return s, nil
}

func readCertificates(secret map[string][]byte) (store, error) {
	var s store
	for _, name := range slices.Sorted(maps.Keys(secret)) {
		if ext := path.Ext(name); ext != ".crt" && ext != ".pem" {
			continue
		}
		found, err := parseCertificates(secret[name])
		if err != nil {
			return nil, fail(MaterialInvalid, "the entry %q does not hold certificates in PEM form", name)
		}
		if err := truststore.ValidateCertificates(found); err != nil {
			return nil, fail(MaterialInvalid, "the entry %q: %.300s", name, err)
		}
		s = append(s, found...)
	}
	if len(s) == 0 {
		return nil, fail(MaterialInvalid, "there is no certificate: put one in under a name that ends with .crt or .pem")
	}
	return s, nil
}

func parseCertificates(rest []byte) (found []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, errors.New("something else than a certificate")
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	if len(found) == 0 {
		return nil, errors.New("no certificate")
	}
	return found, nil
}

// Verify implements Verifier.
func (n *Notation) Verify(ctx context.Context, repo *oci.Repository, sum string) (string, error) {
	reference := repo.String() + "@" + sum
	if _, err := n.policy.GetApplicableTrustPolicy(reference); err != nil {
		return "", fail(MaterialInvalid, "no policy of %s is for %s: name it, or *, in registryScopes", PolicyName, repo)
	}
	m, err := repo.Manifest(ctx, sum)
	if err != nil {
		return "", err
	}
	target := ocispec.Descriptor{MediaType: m.MediaType, Digest: digest.Digest(m.Digest), Size: int64(len(m.Raw))}
	found, err := repo.Referrers(ctx, sum)
	if err != nil {
		return "", err
	}
	t := &tally{what: reference}
	for _, d := range found {
		if d.ArtifactType != notationType {
			continue
		}
		if t.found >= maxSignatures {
			break
		}
		signer, err := n.one(ctx, repo, d, target, reference)
		if err == nil {
			return signer, nil
		}
		if ctx.Err() != nil {
			return "", fail(Untrusted, "verifying %s took too long or was interrupted: %s", reference, context.Cause(ctx))
		}
		if err := t.add(d.Digest.String(), err); err != nil {
			return "", err
		}
	}
	return "", t.verdict("a certificate that is trusted")
}

func (n *Notation) one(ctx context.Context, repo *oci.Repository, d v1.Descriptor, target ocispec.Descriptor, reference string) (string, error) {
	m, err := repo.Manifest(ctx, d.Digest.String())
	if err != nil {
		return "", err
	}
	if len(m.Layers) != 1 {
		return "", errors.New("it does not hold one signature")
	}
	raw, err := repo.Blob(ctx, m.Layers[0], signatureBytes)
	if err != nil {
		return "", err
	}
	var outcome *notation.VerificationOutcome
	err = guard(func() (err error) {
		outcome, err = n.verifier.Verify(ctx, target, raw, notation.VerifierVerifyOptions{ArtifactReference: reference, SignatureMediaType: string(m.Layers[0].MediaType)})
		return err
	})
	if err != nil {
		return "", err
	}
	if outcome.EnvelopeContent == nil || len(outcome.EnvelopeContent.SignerInfo.CertificateChain) == 0 {
		return "", errors.New("nobody signed it")
	}
	return fmt.Sprintf("%.200q", outcome.EnvelopeContent.SignerInfo.CertificateChain[0].Subject.String()), nil
}
