package stacks_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// cachedChart returns a stack with a chart that has everything that Helm changes while it renders:
// aliases, conditions, tags and imported values. Its templates change the values.
func cachedChart() map[string]string {
	object := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-{{ .Chart.Name }}}\ndata: {{ " +
		"dict \"values\" (toYaml .Values) \"files\" (.Files.Get \"note.txt\") | toJson }}\n" +
		"{{- $_ := set .Values \"changed\" \"by the template\" }}{{ $_ = set .Chart \"Name\" \"changed\" }}\n"
	return map[string]string{
		"stack.yaml": components("- {name: one, helm: {chart: c}}\n  - {name: two, helm: {chart: c}}"),
		"c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\ndependencies:\n" +
			"- {name: sub, version: 1.x, alias: front, tags: [face], import-values: [shared]}\n" +
			"- {name: sub, version: 1.x, alias: back, condition: back.enabled}\n",
		"c/values.yaml":            "list: [{a: 1}]\nchanged: no\nback: {size: 2}\nnothing: null\n",
		"c/values.schema.json":     `{"properties":{"list":{"type":"array"}}}`,
		"c/note.txt":               "text\n",
		"c/templates/object.yaml":  object,
		"c/crds/crd.yaml":          crd,
		"c/charts/sub/Chart.yaml":  "apiVersion: v2\nname: sub\nversion: 1.2.0\n",
		"c/charts/sub/values.yaml": "size: 1\nexports: {shared: {imported: {from: sub}}}\n",
		"c/charts/sub/templates/o.yaml": strings.ReplaceAll(object, "{{ .Release.Name }}-{{ .Chart.Name }}",
			"{{ .Release.Name }}-{{ .Values.size }}-{{ .Chart.Name }}"),
	}
}

const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
	"metadata: {name: things.example.com, namespace: ignored}\n" +
	"spec: {scope: Cluster, group: example.com, names: {kind: Thing}}\n"

// cachedChartRequest returns a request that renders one component with cachedChart.
func cachedChartRequest(t *testing.T) stacks.Request {
	t.Helper()
	req := stacks.Request{Root: writeTree(t, cachedChart()), Stack: "demo",
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}}
	req.Choices.Components = []stacks.ComponentChoice{{Name: "two", Enabled: new(bool)}}
	return req
}

// disableBack returns a request of another install, which disables the subchart back.
func disableBack(req stacks.Request) stacks.Request {
	req.Install = stacks.Identity{Namespace: "other", Name: "other"}
	req.Choices.Components = []stacks.ComponentChoice{{Name: "one", Override: map[string]any{
		"values": map[string]any{"back": map[string]any{"enabled": false}, "list": []any{"given"}}}},
		{Name: "two", Enabled: new(bool)}}
	return req
}

// The result of a render, including its trace, does not depend on what the cache has.
func TestChartCacheDoesNotChangeResults(t *testing.T) {
	req := cachedChartRequest(t)
	requests := map[string]stacks.Request{"chart": req, "chart with other values": disableBack(req),
		"golden case": caseRequest(t, "helm")}
	cache := stacks.NewChartCache(stacks.DefaultChartCacheBytes)
	for range 3 {
		for name, r := range requests {
			want, err := stacks.NewChartCache(0).Render(t.Context(), r)
			if err != nil {
				t.Fatal(name, err)
			}
			got, err := cache.Render(t.Context(), r)
			if err != nil {
				t.Fatal(name, err)
			}
			if a, b := asJSON(t, got), asJSON(t, want); a != b {
				t.Errorf("%s: with the cache:\n%s\nwithout:\n%s", name, a, b)
			}
		}
	}
}

// A kept chart is not used for changed files, even if their sizes and times are the same.
func TestChartCacheReadsChangedFiles(t *testing.T) {
	req := cachedChartRequest(t)
	cache := stacks.NewChartCache(stacks.DefaultChartCacheBytes)
	if _, err := cache.Render(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(req.Root, "c", "note.txt")
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("TEXT\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	result, err := cache.Render(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if got := asJSON(t, result); !strings.Contains(got, "TEXT") {
		t.Errorf("the changed file is not rendered: %s", got)
	}
}
