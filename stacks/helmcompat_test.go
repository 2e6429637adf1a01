package stacks_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks"
)

// helmTemplate renders a chart with Helm's packages in the same way as helm install. It returns
// YAML by kind/name.
func helmTemplate(t *testing.T, dir, releaseName, namespace string, values map[string]any) map[string]string {
	t.Helper()
	chart, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := common.ParseKubeVersion("v1.30.0")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	values, err = loader.LoadValues(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if err := chartutil.ProcessDependencies(chart, values); err != nil {
		t.Fatal(err)
	}
	caps := &common.Capabilities{KubeVersion: *kube, APIVersions: common.VersionSet(stacks.BuiltinAPIVersions())}
	options := common.ReleaseOptions{Name: releaseName, Namespace: namespace, Revision: 1, IsInstall: true}
	top, err := util.ToRenderValues(chart, values, options, caps)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, top)
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, crd := range chart.CRDObjects() {
		text.WriteString("\n---\n" + string(crd.File.Data))
	}
	for _, m := range manifests {
		text.WriteString("\n---\n" + m.Content)
	}
	for _, hook := range hooks {
		if !slices.Contains(hook.Events, release.HookTest) && !slices.Contains(hook.Events, release.HookPreDelete) {
			text.WriteString("\n---\n" + hook.Manifest)
		}
	}
	return objectsByName(t, text.String(), namespace)
}

// objectsByName splits text into documents and returns YAML by kind/name.
func objectsByName(t *testing.T, text, namespace string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, doc := range strings.Split("\n"+text, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			t.Fatal(err, doc)
		}
		if object == nil {
			continue
		}
		var meta struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatal(err)
		}
		if m, ok := object["metadata"].(map[string]any); ok && meta.Metadata.Namespace == namespace {
			delete(m, "namespace") // whether set by the renderer or by the chart
		}
		raw, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		out[meta.Kind+"/"+meta.Metadata.Name] = string(raw)
	}
	return out
}

// A chart renders to the same objects as with Helm.
func TestRenderMatchesHelm(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"defaults": {},
		"many values": {
			"replicaCount": 3, "ingress": map[string]any{"enabled": true}, "autoscaling": map[string]any{"enabled": true, "maxReplicas": 7},
			"podAnnotations": map[string]any{"a": "b"}, "resources": map[string]any{"limits": map[string]any{"cpu": "1"}}, "serviceAccount": map[string]any{"create": false},
			"httpRoute": map[string]any{"enabled": true}, "livenessProbe": nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if _, err := chartutil.Create("shop", root); err != nil {
				t.Fatal(err)
			}
			want := helmTemplate(t, filepath.Join(root, "shop"), "my", "prod", values)
			writeFile(t, filepath.Join(root, stacks.FileName), components("- {name: my, namespace: prod, helm: {chart: shop}}"))
			got := renderWith(t, root, values)
			compareObjects(t, got, want)
		})
	}
}

func renderWith(t *testing.T, root string, values map[string]any) map[string]string {
	t.Helper()
	result := mustRender(t, stacks.Request{
		Root: root, Stack: "demo", Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0", APIVersions: stacks.BuiltinAPIVersions()},
		Choices: stacks.Choices{Components: []stacks.ComponentChoice{{Name: "my", Override: map[string]any{"values": values}}}},
	})
	var b strings.Builder
	if err := result.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	return objectsByName(t, b.String(), "prod")
}

func compareObjects(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(want) == 0 {
		t.Fatal("nothing to compare with")
	}
	for id, text := range want {
		if got[id] != text {
			t.Errorf("%s:\n got:\n%s\nwant:\n%s", id, got[id], text)
		}
	}
	for id := range got {
		if want[id] == "" {
			t.Errorf("%s is rendered, but not by Helm", id)
		}
	}
}

// Subcharts, conditions, aliases, globals, nulls and hooks render to the same objects as with Helm.
func TestRenderMatchesHelmWithSubcharts(t *testing.T) {
	chart := "testdata/render/helm/source/stacks/demo/charts/shop"
	for name, values := range map[string]map[string]any{
		"defaults": {"global": map[string]any{"zone": "x"}},
		"nulls":    {"nested": map[string]any{"a": nil, "new": nil}, "cache": map[string]any{"size": nil}, "title": nil},
		"alias":    {"extra": map[string]any{"enabled": true}, "bonus": map[string]any{"x": 1.5}, "big": 12345678},
		"no cache": {"cache": map[string]any{"enabled": false}, "replicas": 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			copyTree(t, chart, filepath.Join(root, "shop"))
			// Helm's keys function returns the keys in random order.
			template := filepath.Join(root, "shop", "templates", "deployment.yaml")
			text, err := os.ReadFile(template)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, template, strings.Replace(string(text), `| join ","`, `| sortAlpha | join ","`, 1))
			want := helmTemplate(t, filepath.Join(root, "shop"), "my", "prod", values)
			writeFile(t, filepath.Join(root, stacks.FileName), components("- {name: my, namespace: prod, helm: {chart: shop}}"))
			got := renderWith(t, root, values)
			for _, other := range []string{"Secret/my-password", "Job/bye"} { // one has random content, the other is suspended until the removal
				delete(got, other)
				delete(want, other)
			}
			compareObjects(t, got, want)
		})
	}
}
