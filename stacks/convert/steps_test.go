package convert_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/convert"
)

// Each tool is stopped before the installs are added, and what Git does not delete is deleted.
func TestStepsWaitAndDelete(t *testing.T) {
	root := write(t, map[string]string{"all.yaml": release,
		"chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 1.0.0\n", "chart/templates/config.yaml": config})
	r, err := convertRepository(t, root, []string{"GitRepository flux-system/fleet"}, filepath.Join(root, "all.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, step := range r.Steps() {
		lines = append(lines, step.Title)
		lines = append(lines, step.Lines...)
	}
	got, from := strings.Join(lines, "\n"), 0
	for _, want := range []string{"set spec.suspend: true",
		"kubectl -n shop wait helmreleases.helm.toolkit.fluxcd.io/web --for=jsonpath='{.spec.suspend}'=true",
		"Commit: add the files", "kubectl -n shop wait ksctlinstall/web",
		"kubectl -n shop delete helmreleases.helm.toolkit.fluxcd.io web --ignore-not-found"} {
		at := strings.Index(got[from:], want)
		if at < 0 {
			t.Fatalf("%q is missing, or too early, in\n%s", want, got)
		}
		from += at
	}
}

// Settings have the meaning that they have in the former tool.
func TestConvertSettings(t *testing.T) {
	chart := map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"chart/templates/config.yaml": config, "shop/config.yaml": config, "other/config.yaml": config}
	manual := strings.Replace(argoApp, "automated: {prune: true, selfHeal: true}", "syncOptions: [Replace=true]", 1)
	second := strings.NewReplacer("name: shop, namespace: shop", "name: second, namespace: shop", "./shop",
		"./other").Replace(shop)
	for name, tc := range map[string]struct {
		files         map[string]string
		wanted, never string
	}{
		"suspended": {map[string]string{"in/a.yaml": shop + "  suspend: true\n"}, "the install is not suspended",
			"  suspend: true"},
		"manual":    {map[string]string{"in/a.yaml": manual}, "prune: false", "force: true"},
		"no drift":  {map[string]string{"in/a.yaml": release}, "drift: {mode: Ignore}", "refused"},
		"no source": {map[string]string{"in/a.yaml": noSource}, "refused in/a.yaml:", "converted"},
		"list":      {map[string]string{"in/a.yaml": asList(release)}, "converted HelmRelease shop/web", "refused"},
		"depends": {map[string]string{"in/a/a.yaml": shop, "in/b/b.yaml": second + "  dependsOn: [{name: shop}]\n"},
			"dependsOn: [{name: shop}]", "kind: Kustomization"},
	} {
		t.Run(name, func(t *testing.T) {
			for file, content := range chart {
				tc.files[file] = content
			}
			root := write(t, tc.files)
			var sources []string
			if name == "no drift" || name == "list" {
				sources = []string{"GitRepository flux-system/fleet"}
			}
			result, err := convertRepository(t, root, sources, filepath.Join(root, "in"))
			if err != nil {
				t.Fatal(err)
			}
			if got := text(result); !strings.Contains(got, tc.wanted) || strings.Contains(got, tc.never) {
				t.Errorf("want %q and not %q, got\n%s", tc.wanted, tc.never, got)
			}
		})
	}
}

const noSource = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: empty, namespace: argocd}
spec:
  destination: {server: https://kubernetes.default.svc, namespace: shop}
  syncPolicy: {syncOptions: [CreateNamespace=true]}
`

func asList(object string) string {
	return "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(object), "\n", "\n  ") + "\n"
}

// Files without an object to convert are an error, and not an empty result.
func TestConvertNeedsObjects(t *testing.T) {
	_, err := convert.Convert(t.Context(), convert.Options{Root: t.TempDir(),
		Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion}})
	if err == nil || !strings.Contains(err.Error(), "there is no Kustomization") {
		t.Errorf("got %v", err)
	}
}

// Fields without a counterpart are listed, each with its object.
func TestConvertListsFieldsThatItDrops(t *testing.T) {
	repository := `apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: podinfo, namespace: shop}
spec:
  url: oci://ghcr.io/stefanprodan/charts/podinfo
  ref: {tag: 6.9.2}
  certSecretRef: {name: ca}
  proxySecretRef: {name: proxy}
  provider: aws
  verify: {provider: cosign}
  layerSelector: {mediaType: a/b}
`
	oci := strings.Replace(release, "chart: {spec: {chart: ./chart, sourceRef: {kind: GitRepository, name: fleet, "+
		"namespace: flux-system}}}", "chartRef: {kind: OCIRepository, name: podinfo}", 1)
	root := write(t, map[string]string{"in/a.yaml": repository,
		"in/b.yaml": oci + "  postRenderStrategy: nohooks\n  upgrade: {preserveValues: true, disableWait: true}\n"})
	result, err := convertRepository(t, root, []string{"GitRepository flux-system/fleet"}, filepath.Join(root, "in"))
	if err != nil {
		t.Fatal(err)
	}
	got := text(result)
	for _, want := range []string{"spec.proxySecretRef of OCIRepository shop/podinfo", "spec.provider of",
		"spec.verify of", "spec.layerSelector of", "certSecretRef: {name: ca}", "spec.postRenderStrategy:",
		"spec.upgrade.preserveValues:", "spec.install.disableWait:"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	root = write(t, map[string]string{"in/a.yaml": strings.Replace(argoApp, "automated: {prune: true",
		"retry: {limit: 5}, automated: {allowEmpty: true, prune: true", 1), "shop/config.yaml": config})
	if result, err = convertRepository(t, root, nil, filepath.Join(root, "in")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"spec.syncPolicy.retry:", "spec.syncPolicy.automated.allowEmpty:"} {
		if !strings.Contains(text(result), want) {
			t.Errorf("%q is missing in\n%s", want, text(result))
		}
	}
}
