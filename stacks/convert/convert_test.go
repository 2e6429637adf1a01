package convert_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/checkout"
	"github.com/ksctl/gitops/stacks/convert"
)

var update = flag.Bool("update", false, "write the golden files")

// fetchCharts takes the charts of repositories from testdata/charts.
func fetchCharts(_ context.Context, _ *appsv1.KsctlInstall, req *stacks.Request) error {
	refs, err := stacks.RequiredCharts(*req)
	for _, ref := range refs {
		root, err := filepath.Abs(filepath.Join("testdata/charts", ref.Name+"-"+ref.Version))
		if err != nil {
			return err
		}
		req.Charts = append(req.Charts, stacks.FetchedChart{ChartRef: ref, Root: root})
	}
	return err
}

// convertRepository converts objects in files of a repository, with others that only the cluster
// has.
func convertRepository(t *testing.T, root string, sources []string, files ...string) (*convert.Result, error) {
	t.Helper()
	objects, err := convert.ReadFiles(root, files)
	if err != nil {
		t.Fatal(err)
	}
	return convert.Convert(t.Context(), convert.Options{Root: root, Objects: objects, Sources: sources,
		FetchCharts: fetchCharts,
		Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion,
			APIVersions: stacks.BuiltinAPIVersions()}})
}

// text returns a result as one text.
func text(r *convert.Result) string {
	var b strings.Builder
	for _, c := range r.Converted {
		fmt.Fprintf(&b, "converted %s: stack %s, install %s, %d objects\n", c.Object, c.Stack, c.Install, c.Objects)
	}
	for _, k := range r.Kept {
		fmt.Fprintf(&b, "kept %s\n", k)
	}
	for _, p := range r.Refused {
		fmt.Fprintf(&b, "refused %s\n", p)
	}
	for _, p := range r.Notes {
		fmt.Fprintf(&b, "note %s\n", p)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		fmt.Fprintf(&b, "--- %s\n%s", name, r.Files[name])
	}
	return b.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it)\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

// validate writes a result to a copy of its repository, and validates that.
func validate(t *testing.T, root string, result *convert.Result) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	if err := result.Write(dir); err != nil {
		t.Fatal(err)
	}
	c, err := checkout.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, problem := range c.Validate(t.Context(), stacks.Capabilities{}).Problems {
		t.Error(problem)
	}
}

// Each repository is converted to the same objects, and its result renders them again.
func TestConvertRepositories(t *testing.T) {
	for name, tc := range map[string]struct{ files, sources []string }{
		"flux": {files: []string{"testdata/flux", "testdata/flux-secret.yaml"}},
		"tenants": {files: []string{"testdata/tenants/clusters", "testdata/tenants-values.yaml"},
			sources: []string{"GitRepository tenants/tenants"}},
		"argocd": {files: []string{"testdata/argocd/root"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join("testdata", name)
			result, err := convertRepository(t, root, tc.sources, tc.files...)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", name+".txt"), text(result))
			validate(t, root, result)
		})
	}
}

// write writes files of a repository.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const shop = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shop, namespace: shop}
spec:
  interval: 5m
  path: ./shop
  prune: true
  sourceRef: {kind: GitRepository, name: fleet}
`

const secret = `apiVersion: v1
kind: Secret
metadata: {name: login, namespace: elsewhere}
stringData: {password: correct horse}
`

// A stack leaves the namespaces of objects as they are, and Flux replaces them.
func TestConvertRefusesToMoveObjects(t *testing.T) {
	root := write(t, map[string]string{"clusters/shop.yaml": shop + "  targetNamespace: shop\n",
		"shop/secret.yaml": secret})
	result, err := convertRepository(t, root, nil, filepath.Join(root, "clusters"))
	want := "clusters/shop.yaml:9: Kustomization shop/shop: spec.targetNamespace: it moves Secret elsewhere/login; " +
		"remove its namespace from the files, or set namespace in the kustomization.yaml"
	if err != nil || len(result.Refused) != 1 || result.Refused[0].String() != want {
		t.Errorf("got %v, %v", result, err)
	}
}

// targetNamespace of Flux is also that of accounts in bindings; that of an install is not.
func TestDifferencesNameTheField(t *testing.T) {
	root := write(t, map[string]string{"clusters/shop.yaml": shop + "  targetNamespace: shop\n",
		"shop/binding.yaml": `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: default}]
`})
	_, err := convertRepository(t, root, nil, filepath.Join(root, "clusters"))
	want := "nothing is written, because the stacks would not render the same objects:\n" +
		`Kustomization shop/shop: RoleBinding.rbac.authorization.k8s.io "shop/reader" /subjects/0/namespace differs`
	if different, ok := errors.AsType[convert.DifferenceError](err); !ok || different.Error() != want {
		t.Errorf("got %v", err)
	}
}

// What a stack can't render stays with Flux: here, images that match nothing.
func TestConvertRefusesWhatAStackCannotRender(t *testing.T) {
	root := write(t, map[string]string{"clusters/shop.yaml": shop + `  images: [{name: gone, newTag: "2"}]
`, "shop/secret.yaml": secret})
	result, err := convertRepository(t, root, nil, filepath.Join(root, "clusters"))
	if err != nil || len(result.Refused) != 1 || len(result.Files) != 0 ||
		!strings.Contains(result.Refused[0].Message, "it can't be rendered as a stack") {
		t.Errorf("got %v, %v", result, err)
	}
}

// Objects of several sources need a choice: a path may exist in each of them.
func TestConvertNeedsOneSource(t *testing.T) {
	root := write(t, map[string]string{"clusters/shop.yaml": shop, "shop/secret.yaml": secret,
		"clusters/other.yaml": strings.ReplaceAll(shop, "fleet", "other")})
	_, err := convertRepository(t, root, nil, filepath.Join(root, "clusters"))
	if err == nil || !strings.Contains(err.Error(), "GitRepository shop/fleet, GitRepository shop/other") {
		t.Errorf("got %v", err)
	}
}

// A Kustomization with an encrypted file can't be compared, and stays.
func TestConvertRefusesEncryptedFiles(t *testing.T) {
	root := write(t, map[string]string{
		"clusters/shop.yaml": shop + "  decryption: {provider: sops, secretRef: {name: age}}\n",
		"shop/secret.yaml": secret + "sops: {mac: 'ENC[AES256_GCM,data:x]', version: 3.9.0, " +
			"lastmodified: '2024-01-01T00:00:00Z', age: [{recipient: age1, enc: x}]}\n"})
	result, err := convertRepository(t, root, nil, filepath.Join(root, "clusters"))
	if err != nil || len(result.Refused) != 1 || !strings.Contains(result.Refused[0].Message, "encrypted with SOPS") {
		t.Errorf("got %v, %v", result, err)
	}
}

// A HelmRelease of a cluster with a range of versions keeps the version that is installed.
func TestConvertKeepsTheInstalledVersion(t *testing.T) {
	release := func(history []any) convert.Object {
		return convert.Object{Value: map[string]any{"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
			"metadata": map[string]any{"name": "web", "namespace": "web"},
			"spec": map[string]any{"chartRef": map[string]any{"kind": "OCIRepository", "name": "podinfo"},
				"interval": "10m"},
			"status": map[string]any{"history": history}}}
	}
	repository := convert.Object{Value: map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1",
		"kind": "OCIRepository", "metadata": map[string]any{"name": "podinfo", "namespace": "web"},
		"spec": map[string]any{"url": "oci://ghcr.io/stefanprodan/charts/podinfo",
			"ref": map[string]any{"semver": "6.x"}, "secretRef": map[string]any{"name": "pull"}}}}
	for name, history := range map[string][]any{"installed": {map[string]any{"chartVersion": "6.9.2"}}, "not": nil} {
		result, err := convert.Convert(t.Context(), convert.Options{Root: t.TempDir(), FetchCharts: fetchCharts,
			Sources:      []string{"GitRepository flux-system/fleet"},
			Objects:      []convert.Object{release(history), repository},
			Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion}})
		if err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join("testdata", "version-"+name+".txt"), text(result))
	}
}
