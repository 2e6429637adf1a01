package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
)

// fullRepository and fullSecrets have every field set, including fields that exclude each other.
func fullRepository() appsv1.ChartRepository {
	ref := func(name string) *fluxmeta.LocalObjectReference { return &fluxmeta.LocalObjectReference{Name: name} }
	return appsv1.ChartRepository{Repository: "oci://registry.example.com/charts", SecretRef: ref("login"),
		CertSecretRef: ref("tls"), PassCredentials: true, Insecure: true,
		Verify: &appsv1.ChartVerification{Provider: appsv1.ChartCosign, SecretRef: ref("keys"),
			TrustedRootSecretRef: ref("root"),
			MatchOIDCIdentity: []appsv1.OIDCIdentityMatch{
				{Issuer: "^https://issuer$", Subject: "^release@example\\.com$"}, {Issuer: "<issuer>", Subject: "&"}}}}
}

func fullSecrets() Secrets {
	return Secrets{
		Credentials: map[string][]byte{"username": []byte("me"), "password": []byte(password)},
		Certificates: map[string][]byte{"ca.crt": []byte("authority"), "tls.crt": []byte("certificate"),
			"tls.key": []byte("private")},
		Keys: map[string][]byte{"a.pub": []byte("public"), "trusted_root.json": []byte("{}")},
	}
}

func fullRef() stacks.ChartRef {
	return stacks.ChartRef{Component: "web", DependencyOf: "charts/web",
		Repository: "oci://registry.example.com/charts", Name: "web", Version: "1.2.3",
		Digest: "sha256:" + strings.Repeat("a", 64)}
}

// The keys name files on disk: if they change, an update resolves every chart again. They are
// hashes of JSON with the Go names of the fields.
func TestGoldenCacheKeys(t *testing.T) {
	repo, secrets, ref := fullRepository(), fullSecrets(), fullRef()
	golden.Complete(t, repo)
	golden.Complete(t, secrets)
	golden.Complete(t, ref)
	f := &Fetcher{key: []byte("key")}
	signed := appsv1.ChartRepository{Verify: &appsv1.ChartVerification{Provider: appsv1.ChartProvenance}}
	var lines strings.Builder
	for _, c := range []struct {
		name   string
		ref    stacks.ChartRef
		access Access
	}{
		{"least", stacks.ChartRef{}, Access{}},
		{"a chart without access", ref, Access{}},
		{"secrets", ref, Access{secrets: secrets}},
		{"verified with a key", ref, Access{repo: signed}},
		{"every field", ref, Access{repo: repo, secrets: secrets}},
	} {
		_, _ = fmt.Fprintf(&lines, "%s: %s\n", c.name, f.cacheKey(c.ref, &c.access))
		_, _ = fmt.Fprintf(&lines, "%s, scope: %s\n", c.name, c.access.fingerprint(f.key))
	}
	golden.Equal(t, "keys.txt", []byte(lines.String()))
}

// A controller reads the files that an earlier release wrote.
func TestGoldenDigestFile(t *testing.T) {
	const key = "0123456789abcdef"
	digest := "sha256:" + strings.Repeat("a", 64)
	dir := t.TempDir()
	r, err := openDigestCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.put(key, digest)
	data, err := os.ReadFile(filepath.Join(dir, key))
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "record.txt", data)
	if err := os.WriteFile(filepath.Join(dir, key), golden.Read(t, "record.txt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, ok := r.get(key); !ok || got != digest {
		t.Errorf("the stored digest is read as %q, %v", got, ok)
	}
}
