package convert_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/convert"
)

const argoApp = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: shop, namespace: argocd}
spec:
  destination: {server: https://kubernetes.default.svc, namespace: shop}
  syncPolicy: {automated: {prune: true, selfHeal: true}}
  source:
    repoURL: https://git.example.com/shop.git
    path: shop
`

// convertApp converts an Application with more lines in its source, and more files.
func convertApp(t *testing.T, source string, files map[string]string) *convert.Result {
	t.Helper()
	all := map[string]string{"apps/shop.yaml": argoApp + source}
	for name, content := range files {
		all[name] = content
	}
	root := write(t, all)
	result, err := convertRepository(t, root, nil, filepath.Join(root, "apps"))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// Parameters are set as Argo CD and Helm set them: above the values files, with lists and commas.
func TestConvertParametersOfArgoCD(t *testing.T) {
	files := map[string]string{"shop/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"shop/more.yaml": "list: [p, q]\n", "shop/file.txt": "from a file",
		"shop/templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n" +
			"data: {all: {{ .Values | toJson | quote }}}\n"}
	got := text(convertApp(t, `    helm:
      valueFiles: [more.yaml]
      values: "ignored: yes"
      valuesObject: {}
      parameters:
      - {name: both, value: text, forceString: true}
      - {name: both, value: plain}
      - {name: "list[0]", value: first}
      - {name: new, value: "{a,b}"}
      - {name: commas, value: "a,,b"}
      fileParameters: [{name: both, path: file.txt}, {name: file, path: file.txt}]
`, files))
	for _, want := range []string{"both: from a file", "list: [first, q]", "new: [a, b]", `commas: 'a,,b'`,
		"file: from a file"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "ignored") {
		t.Errorf("values beside valuesObject were used:\n%s", got)
	}
	got = text(convertApp(t, "    helm: {namespace: other}\n", files))
	if !strings.Contains(got, "spec.source.helm.namespace: the chart is rendered for another namespace") {
		t.Errorf("got\n%s", got)
	}
}

// Files are selected as Argo CD selects them, or the Application is not converted.
func TestConvertDirectoriesOfArgoCD(t *testing.T) {
	files := map[string]string{"shop/a.yaml": config,
		"shop/skipped.yaml": "# +argocd:skip-file-rendering\nkind: Values\nx: {{ no YAML }}\n"}
	result := convertApp(t, "", files)
	if len(result.Converted) != 1 || result.Converted[0].Objects != 1 ||
		!strings.Contains(text(result), "../../shop/a.yaml") {
		t.Errorf("got\n%s", text(result))
	}
	for _, glob := range []string{"[ab].yaml", "!a.yaml", `a\\*.yaml`, "{a", "a}b{", "[]"} {
		result := convertApp(t, "    directory: {include: \""+glob+"\"}\n", files)
		if len(result.Refused) != 1 || !strings.Contains(text(result), "spec.source.directory") {
			t.Errorf("%s: got\n%s", glob, text(result))
		}
	}
	for _, name := range []string{"shop/.argocd-source.yaml", "shop/.argocd-source-shop.yaml"} {
		files[name] = "kustomize: {}\n"
		if result := convertApp(t, "", files); len(result.Refused) != 1 || !strings.Contains(text(result), name) {
			t.Errorf("%s: got\n%s", name, text(result))
		}
		delete(files, name)
	}
}

// Charts with CRDs in a dependency keep the policy of the HelmRelease.
func TestConvertKeepsThePolicyForCRDs(t *testing.T) {
	root := write(t, map[string]string{
		"release.yaml": release + "  install: {crds: Skip}\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 1.0.0\n" +
			"dependencies: [{name: sub, version: 1.0.0}]\n",
		"chart/charts/sub/Chart.yaml":            "apiVersion: v2\nname: sub\nversion: 1.0.0\n",
		"chart/charts/sub/templates/config.yaml": config})
	result, err := convertRepository(t, root, []string{"GitRepository flux-system/fleet"},
		filepath.Join(root, "release.yaml"))
	if err != nil || !strings.Contains(text(result), "crds: Skip") {
		t.Errorf("got %v\n%s", err, text(result))
	}
}
