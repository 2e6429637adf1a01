package chart

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"helm.sh/helm/v4/pkg/provenance"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact/oci"
	"github.com/ksctl/gitops/stacks/artifact/verify"
)

// loadVerifier sets keyring or verifier from the verification Secret.
func (a *Access) loadVerifier(scheme string) (err error) {
	keys := a.secrets.Keys
	switch provider := a.repo.Verify.Provider; provider {
	case appsv1.ChartProvenance:
		a.keyring, err = readKeyring(keys)
		return err
	case appsv1.ChartCosign, appsv1.ChartNotation:
		if scheme != "oci" {
			return terminalError(RepositoryInvalid,
				"spec.charts: %s: verify.provider %s is only allowed for oci:// repositories; set %s",
				a.repo.Repository, provider, appsv1.ChartProvenance)
		}
		switch {
		case provider == appsv1.ChartNotation:
			a.verifier, err = verify.NewNotation(keys, nil)
		case keyless(a.repo.Verify):
			root, ok := keys[verify.TrustedRootKey]
			if !ok {
				return terminalError(SecretInvalid, "the verification Secret has no %s", verify.TrustedRootKey)
			}
			a.verifier, err = verify.NewCosignKeyless(root, identities(a.repo.Verify))
		default:
			a.verifier, err = verify.NewCosignKeys(keys)
		}
		if err != nil {
			return &Error{Reason: SecretInvalid, Message: "reading the verification Secret", Err: err}
		}
		return nil
	default:
		return terminalError(Unverified, "spec.charts: %s: verify.provider %q is unknown", a.repo.Repository, provider)
	}
}

// keyless is true if signatures of OIDC identities are trusted instead of signatures of keys.
func keyless(v *appsv1.ChartVerification) bool {
	return v.Provider == appsv1.ChartCosign && v.SecretRef == nil
}

func identities(v *appsv1.ChartVerification) []verify.Identity {
	out := make([]verify.Identity, len(v.MatchOIDCIdentity))
	for i, m := range v.MatchOIDCIdentity {
		out[i] = verify.Identity{Issuer: m.Issuer, Subject: m.Subject}
	}
	return out
}

// registryKeychain has the credentials for one registry.
type registryKeychain struct {
	registry string
	auth     authn.AuthConfig
}

// Resolve implements authn.Keychain.
func (k registryKeychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if k.auth == (authn.AuthConfig{}) || r.RegistryStr() != k.registry {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(k.auth), nil
}

// verifySignature checks that a trusted signer signed the manifest of a chart in a registry.
func (f *Fetcher) verifySignature(ctx context.Context, ref stacks.ChartRef, access *Access, manifest string) error {
	address := strings.TrimSuffix(ref.Repository, "/") + "/" + ref.Name
	parsed, err := name.NewRepository(strings.TrimPrefix(address, oci.Scheme))
	if err != nil {
		return terminalError(RepositoryInvalid, "the address of the repository is not a valid repository name")
	}
	repo, err := oci.NewClient(oci.Options{Limits: f.limits}).Repository(oci.Scheme+parsed.Name(), oci.Access{
		Keychain: registryKeychain{registry: parsed.RegistryStr(), auth: access.auth}, TLS: access.tls,
		Insecure: access.repo.Insecure})
	if err != nil {
		return terminalError(RepositoryInvalid, "the address of the repository is not a valid repository name")
	}
	defer repo.Close()
	_, err = access.verifier.Verify(ctx, repo, manifest)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*oci.Error](err); ok {
		return transientError(Unreachable, e, "the signatures of the chart can't be read")
	}
	if e, ok := errors.AsType[*verify.Error](err); ok && e.Terminal() {
		return &Error{Reason: SecretInvalid, Message: "reading the verification Secret", Err: e}
	}
	// The error is transient, because a signature may be pushed after the chart.
	return transientError(Unverified, err, "the chart is not signed by a trusted signer")
}

// maxProvenance is the maximum size of a .prov file, which has a Chart.yaml, a digest and a
// signature.
const maxProvenance = 1 << 20

// readKeyring reads the OpenPGP public keys of a Secret. A value has one or several keys, armored
// or binary.
func readKeyring(data map[string][]byte) (openpgp.EntityList, error) {
	var out openpgp.EntityList
	for _, name := range slices.Sorted(maps.Keys(data)) {
		keys, err := readPublicKeys(data[name])
		if err != nil || len(keys) == 0 {
			return nil, terminalError(SecretInvalid, "key %q of the verification Secret is not an OpenPGP public key",
				name)
		}
		out = append(out, keys...)
	}
	if len(out) == 0 {
		return nil, terminalError(SecretInvalid, "the verification Secret has no key")
	}
	return out, nil
}

func readPublicKeys(data []byte) (openpgp.EntityList, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("-----BEGIN")) {
		return openpgp.ReadKeyRing(bytes.NewReader(data))
	}
	var out openpgp.EntityList
	for r := bytes.NewReader(data); ; {
		block, err := armor.Decode(r)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		keys, err := openpgp.ReadKeyRing(block.Body)
		if err != nil {
			return nil, err
		}
		out = append(out, keys...)
	}
}

// verifyProvenance checks that a .prov file is signed by a key of the ring, and that it lists the
// digest of the archive under one of the file names. It does not use Helm's own function, because
// that requires the archive, and only the digest is signed.
func verifyProvenance(ring openpgp.EntityList, prov []byte, digest string, files ...string) *Error {
	block, _ := clearsign.Decode(prov)
	if block == nil {
		return terminalError(Unverified, "the .prov file contains no signed message")
	}
	_, err := block.VerifySignature(ring, nil)
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return terminalError(Unverified, "the .prov file is not signed by a key of the verification Secret")
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired):
		return terminalError(Unverified, "the signature of the .prov file, or its key, has expired")
	case err != nil:
		return &Error{Reason: Unverified, Message: "the signature of the .prov file is invalid", Err: err}
	}
	var sums provenance.SumCollection
	if err := provenance.ParseMessageBlock(block.Plaintext, nil, &sums); err != nil {
		return &Error{Reason: Unverified, Message: "the signed content of the .prov file can't be parsed", Err: err}
	}
	for _, name := range files {
		if got, there := sums.Files[name]; there && got == digest {
			return nil
		}
	}
	return terminalError(Unverified, "the .prov file signs another archive: want digest %s for %s", digest, files[0])
}
