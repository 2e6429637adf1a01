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
	// PolicyName is the key of the trust policy in a Secret.
	PolicyName = "trustpolicy.json"
	// notationType is the artifact type of Notation signatures.
	notationType = "application/vnd.cncf.notary.signature"
	// revocationTimeout bounds a request to one revocation list or OCSP responder.
	revocationTimeout = 5 * time.Second
)

// Notation verifies signatures of the Notary Project.
type Notation struct {
	policy   *trustpolicy.Document
	verifier notation.Verifier
}

// NewNotation returns a verifier that trusts the certificates of a Secret (its entries *.crt
// and *.pem, in every trust store that the policy names) according to the trust policy of the
// Secret (trustpolicy.json). It refuses a policy that accepts signatures by anyone. The client
// is used for the revocation lists and OCSP responders that certificates name;
// artifact.NewHTTPClient with revocationTimeout when nil. The error is an *Error.
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
	options, err := revocationOptions(client)
	if err != nil {
		return nil, newError(MaterialInvalid, "revocation can't be checked: %s", err)
	}
	// There are no plugins: signatures that need one are refused.
	v, err := verifier.NewWithOptions(policy, certificates, nil, options)
	if err != nil {
		return nil, newError(MaterialInvalid, "the trust policy can't be used: %.300s", err)
	}
	return &Notation{policy: policy, verifier: v}, nil
}

func readPolicy(raw []byte) (*trustpolicy.Document, error) {
	if len(raw) == 0 {
		return nil, newError(MaterialInvalid, "there is no trust policy: add one with the name %s", PolicyName)
	}
	policy := &trustpolicy.Document{}
	if err := json.Unmarshal(raw, policy); err != nil {
		return nil, newError(MaterialInvalid, "%s is not well-formed: %.300s", PolicyName, err)
	}
	if err := policy.Validate(); err != nil {
		return nil, newError(MaterialInvalid, "%s is not valid: %.300s", PolicyName, err)
	}
	for _, p := range policy.TrustPolicies {
		level, err := p.SignatureVerification.GetVerificationLevel()
		if err != nil {
			return nil, newError(MaterialInvalid, "%s: policy %.80q: %.300s", PolicyName, p.Name, err)
		}
		for _, must := range []trustpolicy.ValidationType{trustpolicy.TypeIntegrity, trustpolicy.TypeAuthenticity} {
			if level.Enforcement[must] != trustpolicy.ActionEnforce {
				return nil, newError(MaterialInvalid,
					"%s: policy %.80q does not enforce %s and would accept a signature by anyone: use level strict "+
						"or permissive",
					PolicyName, p.Name, must)
			}
		}
	}
	return policy, nil
}

func revocationOptions(client *http.Client) (o verifier.VerifierOptions, err error) {
	fetcher, err := crl.NewHTTPFetcher(client)
	if err != nil {
		return o, err
	}
	with := func(p purpose.Purpose) (revocation.Validator, error) {
		return revocation.NewWithOptions(revocation.Options{OCSPHTTPClient: client, CRLFetcher: fetcher,
			CertChainPurpose: p})
	}
	if o.RevocationCodeSigningValidator, err = with(purpose.CodeSigning); err != nil {
		return o, err
	}
	o.RevocationTimestampingValidator, err = with(purpose.Timestamping)
	return o, err
}

// trustStore returns the same certificates for every trust store of a policy.
type trustStore []*x509.Certificate

// GetCertificates implements truststore.X509TrustStore.
func (s trustStore) GetCertificates(context.Context, truststore.Type, string) ([]*x509.Certificate, error) {
	return s, nil
}

func readCertificates(secret map[string][]byte) (trustStore, error) {
	var s trustStore
	for _, name := range slices.Sorted(maps.Keys(secret)) {
		if ext := path.Ext(name); ext != ".crt" && ext != ".pem" {
			continue
		}
		found := parseCertificates(secret[name])
		if len(found) == 0 {
			return nil, newError(MaterialInvalid, "the entry %q does not contain certificates in PEM format", name)
		}
		if err := truststore.ValidateCertificates(found); err != nil {
			return nil, newError(MaterialInvalid, "the entry %q: %.300s", name, err)
		}
		s = append(s, found...)
	}
	if len(s) == 0 {
		return nil, newError(MaterialInvalid,
			"there is no certificate: add one with a name that ends with .crt or .pem")
	}
	return s, nil
}

// parseCertificates returns the certificates in PEM blocks. It returns none if another block is
// among them.
func parseCertificates(rest []byte) (found []*x509.Certificate) {
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != "CERTIFICATE" {
			return nil
		}
		found = append(found, certificate)
	}
	return found
}

// Verify implements Verifier.
func (n *Notation) Verify(ctx context.Context, repo *oci.Repository, sum string) (string, error) {
	reference := repo.String() + "@" + sum
	if _, err := n.policy.GetApplicableTrustPolicy(reference); err != nil {
		return "", newError(MaterialInvalid,
			"no policy of %s applies to %s: add the repository, or *, to registryScopes", PolicyName, repo)
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
	t := &failures{artifact: reference}
	for _, d := range found {
		if d.ArtifactType != notationType {
			continue
		}
		if t.count >= maxSignatures {
			break
		}
		signer, err := n.verifySignature(ctx, repo, d, target, reference)
		if err == nil {
			return signer, nil
		}
		if ctx.Err() != nil {
			return "", newError(Untrusted, "verifying %s timed out or was interrupted: %s", reference,
				context.Cause(ctx))
		}
		if err := t.add(d.Digest.String(), err); err != nil {
			return "", err
		}
	}
	return "", t.toError("a trusted certificate")
}

func (n *Notation) verifySignature(ctx context.Context, repo *oci.Repository, d v1.Descriptor,
	target ocispec.Descriptor, reference string) (string, error) {
	m, err := repo.Manifest(ctx, d.Digest.String())
	if err != nil {
		return "", err
	}
	if len(m.Layers) != 1 {
		return "", errors.New("the signature manifest does not contain exactly one signature")
	}
	raw, err := repo.Blob(ctx, m.Layers[0], maxSignatureBytes)
	if err != nil {
		return "", err
	}
	var outcome *notation.VerificationOutcome
	err = recoverPanic(func() (err error) {
		outcome, err = n.verifier.Verify(ctx, target, raw,
			notation.VerifierVerifyOptions{ArtifactReference: reference,
				SignatureMediaType: string(m.Layers[0].MediaType)})
		return err
	})
	if err != nil {
		return "", err
	}
	if outcome.EnvelopeContent == nil || len(outcome.EnvelopeContent.SignerInfo.CertificateChain) == 0 {
		return "", errors.New("the signature has no certificate")
	}
	return fmt.Sprintf("%.200q", outcome.EnvelopeContent.SignerInfo.CertificateChain[0].Subject.String()), nil
}
