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

// verification reads what charts of a repository are verified with.
func (a *Access) verification(scheme string) (err error) {
	keys := a.secrets.Keys
	switch provider := a.repo.Verify.Provider; provider {
	case appsv1.ChartProvenance:
		a.keyring, err = keyring(keys)
		return err
	case appsv1.ChartCosign, appsv1.ChartNotation:
		if scheme != "oci" {
			return fail(RepositoryInvalid, "spec.charts: %s: verify.provider %s is for oci:// alone; %s is expected", a.repo.Repository, provider, appsv1.ChartProvenance)
		}
		switch {
		case provider == appsv1.ChartNotation:
			a.signers, err = verify.NewNotation(keys, nil)
		case keyless(a.repo.Verify):
			root, ok := keys[verify.TrustedRootKey]
			if !ok {
				return fail(SecretInvalid, "the Secret that charts are verified with has no %s", verify.TrustedRootKey)
			}
			a.signers, err = verify.NewCosignKeyless(root, identities(a.repo.Verify))
		default:
			a.signers, err = verify.NewCosignKeys(keys)
		}
		if err != nil {
			return &Error{Reason: SecretInvalid, Message: "the Secret that charts are verified with", Err: err}
		}
		return nil
	default:
		return fail(Unverified, "spec.charts: %s: verify.provider %q is not known", a.repo.Repository, provider)
	}
}

// keyless is true when signatures of an identity are trusted, not of a key.
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

// keychain has credentials for one registry.
type keychain struct {
	registry string
	auth     authn.AuthConfig
}

// Resolve implements authn.Keychain.
func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if k.auth == (authn.AuthConfig{}) || r.RegistryStr() != k.registry {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(k.auth), nil
}

// signed checks that somebody who is trusted signed the manifest of a chart in a registry.
func (f *Fetcher) signed(ctx context.Context, ref stacks.ChartRef, access *Access, manifest string) error {
	address := strings.TrimSuffix(ref.Repository, "/") + "/" + ref.Name
	parsed, err := name.NewRepository(strings.TrimPrefix(address, oci.Scheme))
	if err != nil {
		return fail(RepositoryInvalid, "the address of the repository can't be read")
	}
	repo, err := oci.NewClient(oci.Options{Limits: f.limits}).Repository(oci.Scheme+parsed.Name(), oci.Access{
		Keychain: keychain{registry: parsed.RegistryStr(), auth: access.auth}, TLS: access.tls, Insecure: access.repo.Insecure})
	if err != nil {
		return fail(RepositoryInvalid, "the address of the repository can't be read")
	}
	defer repo.Close()
	_, err = access.signers.Verify(ctx, repo, manifest)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*oci.Error](err); ok {
		return retry(Unreachable, e, "its signatures can't be read")
	}
	if e, ok := errors.AsType[*verify.Error](err); ok && e.Terminal() {
		return &Error{Reason: SecretInvalid, Message: "the Secret that charts are verified with", Err: e}
	}
	// A signature may be pushed after the chart.
	return retry(Unverified, err, "it is not signed by anybody who is trusted")
}
