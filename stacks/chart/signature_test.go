package chart

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/e2e/cluster/signatures"
)

type signFunc func(context.Context, signatures.Artifact) error

func TestFetchFromRegistryVerifiesSignatures(t *testing.T) {
	key, err := signatures.NewKey()
	other, err2 := signatures.NewKey()
	recently := time.Now().Add(-45 * time.Minute)
	notary, err3 := signatures.NewNotary(recently)
	otherNotary, err4 := signatures.NewNotary(recently)
	expired, err5 := signatures.NewNotary(recently.Add(-24 * time.Hour))
	policy, err6 := signatures.TrustPolicy("strict")
	if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	public, err := key.PEM()
	if err != nil {
		t.Fatal(err)
	}
	cosign := map[string][]byte{"release.pub": public}
	notation := map[string][]byte{"trustpolicy.json": policy, "ca.crt": notary.PEM(), "old.crt": expired.PEM()}
	// ofOther signs another chart. tampered does the same, and then replaces the digest in the
	// signature with that of the chart.
	ofOther := func(by signFunc) signFunc {
		return func(ctx context.Context, a signatures.Artifact) error {
			a.SignedDigest = pushPlain(t, a.Repository+":0.9.0", "0.9.0")
			return by(ctx, a)
		}
	}
	tampered := func(by signFunc) signFunc {
		return ofOther(func(ctx context.Context, a signatures.Artifact) error {
			a.Tampered = true
			return by(ctx, a)
		})
	}
	sigstore, err := signatures.NewSigstore()
	stranger, err2 := signatures.NewSigstore()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	root, err := sigstore.TrustedRoot(signatures.TrustedRootOptions{})
	if err != nil {
		t.Fatal(err)
	}
	trusted := map[string][]byte{"trusted_root.json": root}
	const subject, issuer = "release@example.com", "https://accounts.example.com"
	as := func(s *signatures.Sigstore, subject string, later time.Duration) signFunc {
		return func(ctx context.Context, a signatures.Artifact) error {
			return s.SignWithTag(ctx, a, subject, issuer, later)
		}
	}
	const keyless = "cosign, keyless"
	for name, c := range map[string]struct {
		provider string
		keys     map[string][]byte
		sign     signFunc
		reason   Reason
	}{
		"keyless":                   {keyless, trusted, as(sigstore, subject, time.Minute), ""},
		"keyless, another subject":  {keyless, trusted, as(sigstore, "mallory@example.com", time.Minute), Unverified},
		"keyless, another root":     {keyless, trusted, as(stranger, subject, time.Minute), Unverified},
		"keyless, expired":          {keyless, trusted, as(sigstore, subject, time.Hour), Unverified},
		"keyless, tampered":         {keyless, trusted, tampered(as(sigstore, subject, time.Minute)), Unverified},
		"keyless, unsigned":         {keyless, trusted, nil, Unverified},
		"keyless, signed by a key":  {keyless, trusted, key.SignWithTag, Unverified},
		"keyless, unreachable":      {keyless, trusted, as(sigstore, subject, time.Minute), Unreachable},
		"cosign, keyless signature": {appsv1.ChartCosign, cosign, as(sigstore, subject, time.Minute), Unverified},

		"cosign":                        {appsv1.ChartCosign, cosign, key.SignWithTag, ""},
		"cosign, bundle":                {appsv1.ChartCosign, cosign, key.SignWithReferrer, ""},
		"cosign, another key":           {appsv1.ChartCosign, cosign, other.SignWithTag, Unverified},
		"cosign, bundle by another key": {appsv1.ChartCosign, cosign, other.SignWithReferrer, Unverified},
		"cosign, unsigned":              {appsv1.ChartCosign, cosign, nil, Unverified},
		"cosign, signs another chart":   {appsv1.ChartCosign, cosign, ofOther(key.SignWithTag), Unverified},
		"cosign, tampered":              {appsv1.ChartCosign, cosign, tampered(key.SignWithTag), Unverified},
		"cosign, tampered bundle":       {appsv1.ChartCosign, cosign, tampered(key.SignWithReferrer), Unverified},
		"cosign, unreachable":           {appsv1.ChartCosign, cosign, key.SignWithTag, Unreachable},
		"notation":                      {appsv1.ChartNotation, notation, notary.Sign, ""},
		"notation, another certificate": {appsv1.ChartNotation, notation, otherNotary.Sign, Unverified},
		"notation, unsigned":            {appsv1.ChartNotation, notation, nil, Unverified},
		"notation, signed with cosign":  {appsv1.ChartNotation, notation, key.SignWithTag, Unverified},
		"notation, signs another chart": {appsv1.ChartNotation, notation, ofOther(notary.Sign), Unverified},
		"notation, tampered":            {appsv1.ChartNotation, notation, tampered(notary.Sign), Unverified},
		"notation, expired certificate": {appsv1.ChartNotation, notation, expired.Sign, Unverified},
		"notation, unreachable":         {appsv1.ChartNotation, notation, notary.Sign, Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := registry.New()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			host := server.Host()
			a := signatures.Artifact{Repository: host + "/charts/web",
				Digest: pushPlain(t, host+"/charts/web:1.0.0", "1.0.0")}
			if c.sign != nil {
				if err := c.sign(t.Context(), a); err != nil {
					t.Fatal(err)
				}
			}
			if c.reason == Unreachable {
				// The server answers all requests except those for signatures.
				proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
				front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.Contains(r.URL.Path, ".sig") || strings.Contains(r.URL.Path, "/referrers/") {
						panic(http.ErrAbortHandler)
					}
					proxy.ServeHTTP(w, r)
				}))
				t.Cleanup(front.Close)
				host = strings.TrimPrefix(front.URL, "http://")
			}
			v := &appsv1.ChartVerification{Provider: c.provider,
				SecretRef: &fluxmeta.LocalObjectReference{Name: "keys"}}
			if c.provider == keyless {
				v = &appsv1.ChartVerification{Provider: appsv1.ChartCosign, TrustedRootSecretRef: v.SecretRef,
					MatchOIDCIdentity: []appsv1.OIDCIdentityMatch{{Issuer: "^https://accounts\\.example\\.com$",
						Subject: "^release@example\\.com$"}}}
			}
			how := &accessBuilder{repo: appsv1.ChartRepository{Repository: "oci://" + host + "/charts", Insecure: true,
				Verify: v}, secrets: Secrets{Keys: c.keys}}
			_, err = get(t, newFetcher(t, Options{}), ref(how.repo.Repository, "web", "1.0.0"), how.build(t))
			if c.reason != "" {
				assertError(t, err, c.reason, false)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// pushPlain pushes a chart to a plain-HTTP registry, and returns the digest of its manifest.
func pushPlain(t *testing.T, reference, version string) string {
	t.Helper()
	image, err := mutate.Append(mutate.ConfigMediaType(empty.Image, "application/vnd.cncf.helm.config.v1+json"),
		mutate.Addendum{Layer: static.NewLayer(archive(t, "web", version), contentMediaType)})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(reference, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func TestNewAccessRefusesInvalidVerification(t *testing.T) {
	named := &fluxmeta.LocalObjectReference{Name: "keys"}
	for name, c := range map[string]struct {
		repository, provider string
		keys                 *fluxmeta.LocalObjectReference
		reason               Reason
		text                 string
	}{
		"cosign for HTTPS": {"https://charts.example.com", appsv1.ChartCosign, named, RepositoryInvalid,
			"only allowed for oci://"},
		"no key":    {"oci://r.example.com", appsv1.ChartCosign, named, SecretInvalid, ".pub"},
		"no root":   {"oci://r.example.com", appsv1.ChartCosign, nil, SecretInvalid, "trusted_root.json"},
		"no policy": {"oci://r.example.com", appsv1.ChartNotation, named, SecretInvalid, "trustpolicy.json"},
	} {
		repo := appsv1.ChartRepository{Repository: c.repository,
			Verify: &appsv1.ChartVerification{Provider: c.provider, SecretRef: c.keys}}
		_, err := NewAccess(&repo, Secrets{Keys: map[string][]byte{"x": []byte("y")}})
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		assertError(t, err, c.reason, true, c.text)
	}
}

func TestReadSecretsRequiresVerificationSecret(t *testing.T) {
	name := func(s string) *fluxmeta.LocalObjectReference { return &fluxmeta.LocalObjectReference{Name: s} }
	for _, c := range []struct {
		verify appsv1.ChartVerification
		want   string
	}{
		{appsv1.ChartVerification{Provider: appsv1.ChartProvenance, SecretRef: name("keys")}, "keys"},
		{appsv1.ChartVerification{Provider: appsv1.ChartCosign, TrustedRootSecretRef: name("root")}, "root"},
		{appsv1.ChartVerification{Provider: appsv1.ChartNotation, TrustedRootSecretRef: name("root")}, ""},
		{appsv1.ChartVerification{Provider: appsv1.ChartCosign}, ""},
	} {
		repo := &appsv1.ChartRepository{Repository: "oci://r.example.com", Verify: &c.verify}
		if got := strings.Join(SecretNames(repo), " "); got != c.want {
			t.Errorf("%+v: reads Secrets %q, want %q", c.verify, got, c.want)
		}
		_, err := ReadSecrets(repo, func(string) (map[string][]byte, error) { return nil, nil })
		if c.want == "" {
			assertError(t, err, RepositoryInvalid, true, "names no Secret")
		} else if err != nil {
			t.Error(err)
		}
	}
}

// A chart that was verified for one identity is not taken from the cache for another.
func TestFingerprintCoversTrustedIdentities(t *testing.T) {
	scope := func(subject string) string {
		a := &Access{repo: appsv1.ChartRepository{Verify: &appsv1.ChartVerification{Provider: appsv1.ChartCosign,
			MatchOIDCIdentity: []appsv1.OIDCIdentityMatch{{Issuer: "x", Subject: subject}}}}}
		return a.fingerprint([]byte("key"))
	}
	if scope("a") == scope("b") {
		t.Error("two identities have the same fingerprint")
	}
}
