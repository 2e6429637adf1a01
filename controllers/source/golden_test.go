package source

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// gitRecipe returns a Git source with the fields that its content depends on.
func gitRecipe(ignore string, submodules bool) *appsv1.KsctlSource {
	obj := &appsv1.KsctlSource{}
	obj.Spec.Ignore = ignore
	obj.Spec.Git = &appsv1.GitSource{URL: "https://git.example.com/team/fleet.git", RecurseSubmodules: submodules}
	return obj
}

// TestGoldenGitContent pins the digests in status.observedContent. With other digests, every source
// would be fetched again after an upgrade. The digests are computed from JSON with the Go names of
// fields.
func TestGoldenGitContent(t *testing.T) {
	const uid = "0c9c2e41-d2f9-4f9b-9c41-bebc1984d67a"
	tagged := resolvedRef{name: "v1.0.0", commit: strings.Repeat("1", 40),
		tag: git.Tag{Name: "v1.0.0", Commit: strings.Repeat("1", 40), Object: strings.Repeat("2", 40)}}
	golden.Complete(t, tagged.tag)
	var lines strings.Builder
	for _, c := range []struct {
		name   string
		obj    *appsv1.KsctlSource
		trust  gitTrust
		chosen resolvedRef
	}{
		{"least", gitRecipe("", false), gitTrust{}, resolvedRef{}},
		{"ignore", gitRecipe("*.md\n!README.md\n<&>\n", false), gitTrust{}, tagged},
		{"submodules", gitRecipe("", true), gitTrust{}, tagged},
		{"HEAD", gitRecipe("", false), gitTrust{mode: appsv1.VerifyHEAD, version: uid + "/7"}, tagged},
		{"Tag", gitRecipe("", false), gitTrust{mode: appsv1.VerifyTag, version: uid + "/7"}, tagged},
		{"Tag of a name alone", gitRecipe("", false), gitTrust{mode: appsv1.VerifyTag, version: uid + "/7"},
			resolvedRef{tag: git.Tag{Name: "v1.0.0"}}},
		{"every field", gitRecipe("*.md\n", true), gitTrust{mode: appsv1.VerifyTagAndHEAD, version: uid + "/7"},
			tagged},
	} {
		_, _ = fmt.Fprintf(&lines, "%s: %s\n", c.name, contentOf(c.obj, c.trust, c.chosen))
	}
	golden.Equal(t, "content-git.txt", []byte(lines.String()))
}

// ociRecipe returns an OCI source with the fields that its content depends on.
func ociRecipe(ignore, mediaType string, v *appsv1.OCIVerification) *appsv1.KsctlSource {
	obj := &appsv1.KsctlSource{}
	obj.Spec.Ignore = ignore
	obj.Spec.OCI = &appsv1.OCISource{URL: "oci://registry.example.com/team/fleet", Verify: v}
	if mediaType != "" {
		obj.Spec.OCI.LayerSelector = &appsv1.OCILayerSelector{MediaType: mediaType}
	}
	return obj
}

func TestGoldenOCIContent(t *testing.T) {
	const media, version = "application/vnd.cncf.flux.content.v1.tar+gzip", "0c9c2e41-d2f9-4f9b-9c41-bebc1984d67a/7"
	keyless := &appsv1.OCIVerification{Provider: appsv1.Cosign, SecretRef: ref("keys"),
		TrustedRootSecretRef: ref("root"),
		MatchOIDCIdentity: []appsv1.OIDCIdentityMatch{
			{Issuer: "^https://issuer$", Subject: "^release@example\\.com$"}, {Issuer: "<issuer>", Subject: "&"}}}
	golden.Complete(t, keyless)
	var lines strings.Builder
	for _, c := range []struct {
		name  string
		obj   *appsv1.KsctlSource
		trust ociTrust
	}{
		{"least", ociRecipe("", "", nil), ociTrust{}},
		{"ignore", ociRecipe("*.md\n", "", nil), ociTrust{}},
		{"a layer", ociRecipe("", media, nil), ociTrust{}},
		{"cosign with keys", ociRecipe("", "", &appsv1.OCIVerification{Provider: appsv1.Cosign,
			SecretRef: ref("keys")}),
			ociTrust{provider: appsv1.Cosign, version: version}},
		{"notation", ociRecipe("", "", &appsv1.OCIVerification{Provider: appsv1.Notation, SecretRef: ref("keys")}),
			ociTrust{provider: appsv1.Notation, version: version}},
		{"every field", ociRecipe("*.md\n", media, keyless), ociTrust{provider: appsv1.Cosign, version: version}},
	} {
		_, _ = fmt.Fprintf(&lines, "%s: %s\n", c.name, c.trust.content(c.obj))
	}
	golden.Equal(t, "content-oci.txt", []byte(lines.String()))
}

// TestGoldenNames pins revisions and metadata of artifacts, which consumers read.
func TestGoldenNames(t *testing.T) {
	commit := strings.Repeat("1", 40)
	golden.Equal(t, "names.txt", []byte(strings.Join([]string{
		"folder of the storage: " + Space,
		"revision of a branch: " + resolvedRef{name: "main", commit: commit}.revision(),
		"revision of a commit: " + resolvedRef{commit: commit}.revision(),
		"metadata, signer: " + signedByKey,
		"metadata, left out: " + leftOutKey,
	}, "\n")+"\n"))
	if got := commitOf(resolvedRef{name: "a@b", commit: commit}.revision()); got != commit {
		t.Errorf("the commit is parsed as %s", got)
	}
}
