package chart

import (
	"context"
	"errors"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

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
			return terminalError(RepositoryInvalid, "spec.charts: %s: verify.provider %s is only allowed for oci:// repositories; set %s", a.repo.Repository, provider, appsv1.ChartProvenance)
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
		Keychain: registryKeychain{registry: parsed.RegistryStr(), auth: access.auth}, TLS: access.tls, Insecure: access.repo.Insecure})
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
