package stacks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// fourObjects returns a stack with a kustomization of a Deployment, Service, ConfigMap and
// ServiceAccount, with an image, replicas and two patches.
func fourObjects() map[string]string {
	return map[string]string{
		"stack.yaml": components("- {name: app, kustomize: {path: k}}"),
		"k/kustomization.yaml": `resources: [all.yaml]
images: [{name: web, newTag: "2"}]
replicas: [{name: web, count: 3}]
patches:
- patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec: {template: {spec: {containers: [{name: web, args: [--fast]}]}}}
- target: {kind: Service}
  patch: '[{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]'
`,
		"k/all.yaml": web + "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: " +
			"80}]}\n---\n" + configMap + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n",
	}
}

func benchRender(b *testing.B, req stacks.Request) {
	b.Helper()
	b.ReportAllocs()
	mustRender(b, req)
	for b.Loop() {
		mustRender(b, req)
	}
}

func BenchmarkRenderKustomize(b *testing.B) {
	benchRender(b, stacks.Request{Root: writeTree(b, fourObjects()), Stack: "demo"})
}

func BenchmarkRenderChart(b *testing.B) { benchRender(b, caseRequest(b, "helm")) }

func BenchmarkRenderManifests(b *testing.B) {
	files := map[string]string{"stack.yaml": components("- {name: app, manifests: [m.yaml]}")}
	var all strings.Builder
	for i := range 1000 {
		_, _ = fmt.Fprintf(&all, "---\n%s", strings.ReplaceAll(web, "name: web", fmt.Sprintf("name: web%d", i)))
	}
	files["m.yaml"] = all.String()
	benchRender(b, stacks.Request{Root: writeTree(b, files), Stack: "demo"})
}

func BenchmarkOverrides(b *testing.B) {
	req := stacks.Request{Root: writeTree(b, fourObjects()), Stack: "demo"}
	req.Choices.Components = []stacks.ComponentChoice{{Name: "app", Override: map[string]any{
		"images":   []any{map[string]any{"name": "web", "newTag": "3"}},
		"replicas": []any{map[string]any{"name": "web", "count": int64(4)}},
		"patches": []any{map[string]any{"target": map[string]any{"kind": "ConfigMap"},
			"patch": `[{"op":"add","path":"/data","value":{"a":"b"}}]`}},
	}}}
	benchRender(b, req)
}

// BenchmarkFields sets ten fields of a Deployment and a ConfigMap; BenchmarkFieldsAsPatches makes
// the same changes with JSON patches.
func BenchmarkFields(b *testing.B) {
	var fields strings.Builder
	for i := range 5 {
		fmt.Fprintf(&fields, "    - {target: {kind: ConfigMap, name: web}, path: data.key%d, value: stack.greeting, "+
			"create: true}\n    - {target: {kind: Deployment, name: web}, path: metadata.labels.key%d, "+
			"value: stack.greeting, create: true}\n", i, i)
	}
	root := writeTree(b, fieldsStack(componentSources["manifests"], fields.String()))
	benchRender(b, stacks.Request{Root: root, Stack: "demo"})
}

func BenchmarkFieldsAsPatches(b *testing.B) {
	patch := func(kind, at string, i int) string {
		return fmt.Sprintf("{'target': {'kind': '%s', 'name': 'web'}, 'patch': "+
			"[{'op': 'add', 'path': '%s/key%d', 'value': stack.greeting}]}", kind, at, i)
	}
	var patches []string
	for i := range 5 {
		patches = append(patches, patch("ConfigMap", "/data", i), patch("Deployment", "/metadata/labels", i))
	}
	files := fieldsStack(componentSources["manifests"], "      []\n    parameters:\n      map: |\n        "+
		"{'patches': ["+
		strings.Join(patches, ", ")+"]}\n")
	benchRender(b, stacks.Request{Root: writeTree(b, files), Stack: "demo"})
}

func BenchmarkRendererHit(b *testing.B) {
	req := caseRequest(b, "helm")
	r := stacks.NewRenderer(stacks.RendererOptions{})
	if _, err := r.Render(b.Context(), req); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Render(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDigest computes the digest of a request.
func BenchmarkDigest(b *testing.B) {
	req := caseRequest(b, "helm")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := stacks.Digest(req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRenderSmall renders a few plain manifests, as in most installs.
func BenchmarkRenderSmall(b *testing.B) {
	benchRender(b, stacks.Request{Root: writeTree(b, map[string]string{
		"stack.yaml": components("- {name: app, manifests: [m/]}"), "m/1.yaml": configMap, "m/2.yaml": web,
		"m/3.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n",
		"m/4.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n"}), Stack: "demo"})
}
