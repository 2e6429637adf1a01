package convert_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/convert"
)

// Nothing is written outside of the repository, over a file, or in part.
func TestWriteStaysInTheRepository(t *testing.T) {
	outside := t.TempDir()
	for want, name := range map[string]string{"outside of the repository": "../evil.yaml", "escapes": "link/evil.yaml",
		"exists": "have.yaml"} {
		root := write(t, map[string]string{"have.yaml": "kept"})
		if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
			t.Fatal(err)
		}
		result := convert.Result{Files: map[string][]byte{name: []byte("x"), "also.yaml": []byte("x")}}
		if err := result.Write(root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(root, "also.yaml")); err == nil && name != "link/evil.yaml" {
			t.Errorf("%s: the other file was written", name)
		}
		if data, err := os.ReadFile(filepath.Join(root, "have.yaml")); err != nil || string(data) != "kept" {
			t.Errorf("%s: got %s, %v", name, data, err)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("got %v", entries)
	}
}

// The working copy has no link that leads out of it, and names are those of the API server.
func TestConvertReadsOnlyTheRepository(t *testing.T) {
	outside := write(t, map[string]string{"secret.yaml": secret})
	root := write(t, map[string]string{"clusters/shop.yaml": shop,
		"clusters/evil.yaml":      strings.ReplaceAll(shop, "name: shop,", "name: ../../evil,"),
		"clusters/namespace.yaml": strings.ReplaceAll(shop, "namespace: shop", "namespace: ../evil")})
	if err := os.Symlink(outside, filepath.Join(root, "shop")); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "checkout")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	result, err := convertRepository(t, link, []string{"GitRepository shop/fleet"}, filepath.Join(root, "clusters"))
	if err != nil || len(result.Converted) != 0 || len(result.Refused) != 3 {
		t.Fatalf("got %v\n%s", err, text(result))
	}
	got := text(result)
	for _, want := range []string{`"./shop" can't be used: it is not in the repository`,
		`"../../evil" is no name of an object`, `"../evil" is no name of a namespace`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}

// A KsctlSource of an earlier run is used again, and another file is never replaced.
func TestConvertKeepsSourceFiles(t *testing.T) {
	app := `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: shop, namespace: argocd}
spec:
  source: {repoURL: https://git.example.com/fleet.git, path: shop}
  destination: {server: https://kubernetes.default.svc, namespace: shop}
  syncPolicy: {automated: {prune: true, selfHeal: true}}
`
	files := map[string]string{"apps/shop.yaml": app, "shop/config.yaml": config}
	convertAgain := func() *convert.Result {
		root := write(t, files)
		result, err := convertRepository(t, root, nil, filepath.Join(root, "apps"))
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	source := "apps/shop-source.yaml"
	files[source] = string(convertAgain().Files[source])
	if files[source] == "" {
		t.Fatal("no source was written")
	}
	for name := range convertAgain().Files {
		if strings.HasSuffix(name, "source.yaml") {
			t.Errorf("got %s beside an equal one", name)
		}
	}
	files[source] = "kind: Other\n"
	if got := convertAgain(); got.Files[source] != nil || got.Files["apps/shop-new-source.yaml"] == nil {
		t.Errorf("got %s", text(got))
	}
}
