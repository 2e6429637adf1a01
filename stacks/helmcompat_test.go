package stacks_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/convert/helmtemplate"
)

// helmTemplate renders a chart with Helm. It returns YAML by kind/name.
func helmTemplate(t *testing.T, dir, releaseName, namespace string, values map[string]any) map[string]string {
	t.Helper()
	raw, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return helmTemplateYAML(t, dir, releaseName, namespace, string(raw))
}

// helmTemplateYAML is helmTemplate with the content of a values file.
func helmTemplateYAML(t *testing.T, dir, releaseName, namespace, valuesFile string) map[string]string {
	t.Helper()
	objects, err := helmtemplate.Render(dir, helmtemplate.Options{Release: releaseName, Namespace: namespace,
		KubeVersion: "v1.30.0", APIVersions: stacks.BuiltinAPIVersions(), Values: []byte(valuesFile)})
	if err != nil {
		t.Fatal(err)
	}
	return objectsByName(t, objects, namespace)
}

// objectsByName returns YAML by kind/name.
func objectsByName(t *testing.T, objects []map[string]any, namespace string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, object := range objects {
		u := &unstructured.Unstructured{Object: object}
		if u.GetNamespace() == namespace {
			u.SetNamespace("") // whether set by the renderer or by the chart
		}
		// null is the same as none
		u.SetLabels(u.GetLabels())
		u.SetAnnotations(u.GetAnnotations())
		raw, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		out[u.GetKind()+"/"+u.GetName()] = string(raw)
	}
	return out
}

// resultByName is objectsByName for what we rendered.
func resultByName(t *testing.T, result stacks.Result, namespace string) map[string]string {
	t.Helper()
	var objects []map[string]any
	for _, c := range result.Components {
		for _, o := range c.Objects {
			var object map[string]any
			if err := yaml.Unmarshal(o.Manifest, &object); err != nil {
				t.Fatal(err)
			}
			objects = append(objects, object)
		}
	}
	return objectsByName(t, objects, namespace)
}

// A chart renders to the same objects as with Helm.
func TestRenderMatchesHelm(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"defaults": {},
		"many values": {
			"replicaCount": 3, "ingress": map[string]any{"enabled": true},
			"autoscaling":    map[string]any{"enabled": true, "maxReplicas": 7},
			"podAnnotations": map[string]any{"a": "b"},
			"resources":      map[string]any{"limits": map[string]any{"cpu": "1"}},
			"serviceAccount": map[string]any{"create": false},
			"httpRoute":      map[string]any{"enabled": true}, "livenessProbe": nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if _, err := chartutil.Create("shop", root); err != nil {
				t.Fatal(err)
			}
			want := helmTemplate(t, filepath.Join(root, "shop"), "my", "prod", values)
			writeFile(t, filepath.Join(root, stacks.FileName),
				components("- {name: my, namespace: prod, helm: {chart: shop}}"))
			got := renderWith(t, root, values)
			compareObjects(t, got, want)
		})
	}
}

func renderWith(t *testing.T, root string, values map[string]any) map[string]string {
	t.Helper()
	result := mustRender(t, stacks.Request{
		Root: root, Stack: "demo",
		Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0", APIVersions: stacks.BuiltinAPIVersions()},
		Choices: stacks.Choices{Components: []stacks.ComponentChoice{{Name: "my",
			Override: map[string]any{"values": values}}}},
	})
	return resultByName(t, result, "prod")
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
		"nulls": {"nested": map[string]any{"a": nil, "new": nil}, "cache": map[string]any{"size": nil},
			"title": nil},
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
			writeFile(t, filepath.Join(root, stacks.FileName),
				components("- {name: my, namespace: prod, helm: {chart: shop}}"))
			got := renderWith(t, root, values)
			// one has random content, the other is suspended until the removal
			for _, other := range []string{"Secret/my-password", "Job/bye"} {
				delete(got, other)
				delete(want, other)
			}
			compareObjects(t, got, want)
		})
	}
}
