package stacks_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "web:1"}
      - {name: side, image: "side:1"}
`

// renderKustomization renders a stack with one kustomization, in the folder k.
func renderKustomization(t testing.TB, files map[string]string, override map[string]any) (stacks.Result, error) {
	t.Helper()
	files["stack.yaml"] = components("- {name: app, kustomize: {path: k}}")
	req := stacks.Request{Root: writeTree(t, files), Stack: "demo"}
	if override != nil {
		req.Choices.Components = []stacks.ComponentChoice{{Name: "app", Override: override}}
	}
	return stacks.Render(t.Context(), req)
}

// No field of a kustomization and no form of URL makes a build fetch anything, over HTTP or with
// git.
func TestKustomizeFetchesNothing(t *testing.T) {
	var hits atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		_, _ = w.Write([]byte(configMap))
	}))
	defer server.Close()
	// A fake git that records its calls.
	bin, trace := t.TempDir(), filepath.Join(t.TempDir(), "trace")
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\necho \"$@\" >>"+trace+"\nexit 1\n"),
		0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	urls := []string{
		server.URL + "/x.yaml", strings.Replace(server.URL, "http://", "HTTP://", 1),
		strings.Replace(server.URL, "http://", "http:", 1),
		"https://127.0.0.1/org/repo?ref=main", "ssh://git@127.0.0.1/org/repo", "git@127.0.0.1:org/repo",
		"git::https://127.0.0.1/org/repo",
		"github.com/org/repo", "GitHub.com/org/repo//path?ref=x", "github.com:org/repo", "file:///etc",
		"me@127.0.0.1:org/repo//x", "GIT::github.com/o/r",
	}
	fields := []string{
		"resources: [%q]", "bases: [%q]", "components: [%q]", "crds: [%q]", "configurations: [%q]", "generators: [%q]",
		"transformers: [%q]", "validators: [%q]",
		"patches: [{path: %q}]", "patchesStrategicMerge: [%q]",
		"patchesJson6902: [{target: {version: v1, kind: ConfigMap, name: a}, path: %q}]", "replacements: [{path: %q}]",
		"configMapGenerator: [{name: x, files: [%q]}]", "configMapGenerator: [{name: x, envs: [%q]}]",
		"configMapGenerator: [{name: x, env: %q}]",
		"secretGenerator: [{name: x, files: [%q]}]", "openapi: {path: %q}", "resources: [&a %q]\nbases: [*a]",
		"resources:\n- ../base # %q",
	}
	for _, field := range fields {
		for _, url := range urls {
			files := map[string]string{"k/kustomization.yaml": fmt.Sprintf(field, url),
				"base/kustomization.yaml": fmt.Sprintf("resources: [%q]", url)}
			result, err := renderKustomization(t, files, nil)
			if err == nil {
				t.Errorf("%s with %s: the render succeeded: %v", field, url, objectNames(result))
			}
		}
	}
	if hits.Load() > 0 {
		t.Errorf("%d requests were made", hits.Load())
	}
	if ran, err := os.ReadFile(trace); err == nil {
		t.Errorf("git was run:\n%s", ran)
	}
}

// Every kustomization has two bases with two bases each, so that their number doubles at each
// level.
func TestKustomizeBuildsAreBounded(t *testing.T) {
	files := map[string]string{"k/kustomization.yaml": "resources: [../l0a, ../l0b]\n"}
	for level := range 20 {
		for _, side := range []string{"a", "b"} {
			files[fmt.Sprintf("l%d%s/kustomization.yaml", level, side)] = fmt.Sprintf("resources: [../l%da, ../l%db]\n",
				level+1, level+1)
		}
	}
	_, err := renderKustomization(t, files, nil)
	if err == nil || !strings.Contains(err.Error(), "the build reads more than 1000 kustomizations") {
		t.Error(err)
	}
	deep := map[string]string{"k/kustomization.yaml": "resources: [../d0]\n"}
	for level := range 40 {
		deep[fmt.Sprintf("d%d/kustomization.yaml", level)] = fmt.Sprintf("resources: [../d%d]\n", level+1)
	}
	if _, err := renderKustomization(t, deep, nil); err == nil ||
		!strings.Contains(err.Error(), "nested deeper than 32") {
		t.Error(err)
	}
	if _, err := renderKustomization(t, map[string]string{"k/kustomization.yaml": "resources: [..]\n",
		"kustomization.yaml": "resources: [k]\n"}, nil); err == nil ||
		!strings.Contains(err.Error(), "makes a cycle: k → .") {
		t.Error(err)
	}
}

// Errors of kustomize itself have the path of the kustomization.
func TestKustomizeErrorsNameTheKustomization(t *testing.T) {
	for want, files := range map[string]map[string]string{
		`k/kustomization.yaml: component "app": the kustomization cannot be built: `: {
			"k/kustomization.yaml": "resources: [web.yaml]\npatches: [{path: p.yaml}]\n", "k/web.yaml": web,
			"k/p.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: none}\n"},
		`k/kustomization.yaml: component "app": the kustomization cannot be built:`: {
			"k/kustomization.yaml": "resources: [web.yaml]\n", "k/web.yaml": "a: [\n"},
		`k/kustomization.yaml:1: component "app": this is not valid YAML`: {
			"k/kustomization.yaml": "resources: [\n"},
		`k/kustomization.yaml:2: component "app": the key "resources" is set twice`: {
			"k/kustomization.yaml": "resources: []\nresources: []\n"},
		`k/kustomization.yaml: component "app": the kustomization cannot be built`: {
			"k/kustomization.yaml": "namePrefix: [x]\n"},
	} {
		if _, err := renderKustomization(t, files, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// Built-in transformers are allowed, in files and in folders.
func TestKustomizeBuiltinPlugins(t *testing.T) {
	result, err := renderKustomization(t, map[string]string{
		"k/kustomization.yaml": "resources: [web.yaml]\ntransformers: [t.yaml, ../more]\n", "k/web.yaml": web,
		"k/t.yaml": "apiVersion: builtin\nkind: PrefixTransformer\nmetadata: {name: x}\n" +
			"prefix: pre-\nfieldSpecs: [{path: metadata/name}]\n",
		"more/kustomization.yaml": "resources: [suffix.yaml]\n",
		"more/suffix.yaml": "apiVersion: builtin\nkind: SuffixTransformer\nmetadata: {name: x}\n" +
			"suffix: -post\nfieldSpecs: [{path: metadata/name}]\n",
	}, nil)
	if err != nil || strings.Join(objectNames(result), " ") != "pre-web-post" {
		t.Errorf("%v %v", objectNames(result), err)
	}
	_, err = renderKustomization(t, map[string]string{
		"k/kustomization.yaml": "transformers: [../more]\n", "more/kustomization.yaml": "resources: [x.yaml]\n",
		"more/x.yaml": "apiVersion: mine/v1\nkind: Runner\nmetadata: {name: x}\n",
	}, nil)
	if err == nil ||
		!strings.Contains(err.Error(),
			`more/x.yaml:1: component "app": the plugin Runner of apiVersion mine/v1 is not built into kustomize`) {
		t.Error(err)
	}
}

// Overrides also change custom resources and their pod templates. They do not change anything else.
func TestOverridesChangeOnlyMatchingObjects(t *testing.T) {
	custom := "apiVersion: example.com/v1\nkind: Fleet\nmetadata: {name: fleet, namespace: own}\nspec: {template: " +
		"{spec: {containers: [{name: a, image: 'registry.example.com:5000/web@sha256:00'}]}}, size: 0644, on: yes, " +
		"list: [{name: x, v: 1}], date: 2024-01-02, empty: {}, none: null}\n"
	files := func() map[string]string {
		return map[string]string{"k/kustomization.yaml": "resources: [web.yaml, custom.yaml]\n", "k/web.yaml": web,
			"k/custom.yaml": custom}
	}
	before, err := renderKustomization(t, files(), nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := renderKustomization(t, files(), map[string]any{
		"images": []any{map[string]any{"name": "registry.example.com:5000/web", "newName": "mirror/web",
			"newTag": "3"}},
		"patches": []any{map[string]any{"patch": "apiVersion: example.com/v1\nkind: Fleet\n" +
			"metadata: {name: fleet}\nspec: {added: true}\n"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(findObject(t, before, "Fleet", "fleet").Manifest),
		"registry.example.com:5000/web@sha256:00", "mirror/web:3", 1)
	want = strings.Replace(want, `"spec":{`, `"spec":{"added":true,`, 1)
	if got := string(findObject(t, after, "Fleet", "fleet").Manifest); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if findObject(t, before, "Deployment", "web").Hash != findObject(t, after, "Deployment", "web").Hash {
		t.Error("an object without a matching override was changed")
	}
	// An override that sets the current value matches, too.
	if _, err := renderKustomization(t, files(),
		map[string]any{"images": []any{map[string]any{"name": "web", "newTag": "1"}},
			"replicas": []any{map[string]any{"name": "web", "count": int64(1)}}}); err != nil {
		t.Error(err)
	}
	// A patch may rename an object, but not to the name of another one.
	_, err = renderKustomization(t, map[string]string{"k/kustomization.yaml": "resources: [web.yaml, b.yaml]\n",
		"k/web.yaml": web, "k/b.yaml": strings.Replace(web, "name: web", "name: web2", 1)}, map[string]any{
		"patches": []any{map[string]any{"target": map[string]any{"name": "web2"},
			"patch": `[{"op":"replace","path":"/metadata/name","value":"web"}]`}},
	})
	if err == nil || !strings.Contains(err.Error(), `is rendered twice`) {
		t.Error(err)
	}
	_, err = renderKustomization(t, files(),
		map[string]any{"patches": []any{map[string]any{"target": map[string]any{"kind": "Fleet"},
			"patch": `[{"op":"remove","path":"/metadata/name"}]`}}})
	if err == nil ||
		!strings.Contains(err.Error(),
			`after the overrides, Fleet.example.com "own/fleet": the Fleet has no metadata.name`) {
		t.Error(err)
	}
}
