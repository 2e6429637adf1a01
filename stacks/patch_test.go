package stacks_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// patchedData renders a ConfigMap with patches of the stack, of its map and of an install, and
// returns its data.
func patchedData(t *testing.T, component string, override []any) (map[string]string, error) {
	t.Helper()
	root := writeTree(t, map[string]string{
		"stack.yaml": stackHeader +
			"  parameters: {schema: {properties: {greeting: {type: string, default: \"a \\\"b\\\"\"}}}}\n" +
			"  components:\n  - name: web\n    manifests: [web.yaml]\n" + component,
		"web.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {x: \"1\", y: \"1\"}\n"})
	req := stacks.Request{Root: root, Stack: "demo", Install: stacks.Identity{Namespace: "team", Name: "site"},
		Choices: stacks.Choices{Components: []stacks.ComponentChoice{{Name: "web"}}}}
	if override != nil {
		req.Choices.Components[0].Override = map[string]any{"patches": override}
	}
	result, err := stacks.Render(t.Context(), req)
	if err != nil {
		return nil, err
	}
	var object struct{ Data map[string]string }
	if err := json.Unmarshal(result.Components[0].Objects[0].Manifest, &object); err != nil {
		t.Fatal(err)
	}
	return object.Data, nil
}

func TestPatchesAsTextAndYAML(t *testing.T) {
	const target = "{target: {kind: ConfigMap}, "
	for name, tc := range map[string]struct {
		component string
		override  []any
		want      map[string]string
	}{
		"a text, as an object": {component: "    patches: [" + target + "patch: \"apiVersion: v1\\nkind: ConfigMap\\n" +
			"metadata: {name: web}\\ndata: {x: a}\"}]\n", want: map[string]string{"x": "a", "y": "1"}},
		"a text, as a list": {component: "    patches: [" + target +
			"patch: '[{\"op\": \"add\", \"path\": \"/data/x\", \"value\": \"a\"}]'}]\n",
			want: map[string]string{"x": "a", "y": "1"}},
		"an object with a target": {component: "    patches: [" + target + "patch: {data: {x: a, y: null, z: c}}}]\n",
			want: map[string]string{"x": "a", "z": "c"}},
		"an object with a target and labels": {component: "    patches: [" + target +
			"patch: {metadata: {labels: {a: b}}, data: {x: a}}}]\n", want: map[string]string{"x": "a", "y": "1"}},
		"an object without a target": {component: "    patches: [{patch: {apiVersion: v1, kind: ConfigMap, metadata: " +
			"{name: web}, " +
			"data: {x: a}}}]\n", want: map[string]string{"x": "a", "y": "1"}},
		"a list": {component: "    patches: [" + target +
			"patch: [{op: remove, path: /data/x}, {op: add, path: /data/z, value: c}]}]\n",
			want: map[string]string{"y": "1", "z": "c"}},
		"of a map, with a quote in a parameter": {component: "    parameters: {map: \"{'patches': [{'target': " +
			"{'kind': " +
			"'ConfigMap'}, 'patch': {'data': {'x': stack.greeting}}}]}\"}\n",
			want: map[string]string{"x": "a \"b\"", "y": "1"}},
		"of an install": {override: []any{map[string]any{"target": map[string]any{"name": "web"},
			"patch": map[string]any{"data": map[string]any{"x": "a"}}}}, want: map[string]string{"x": "a", "y": "1"}},
		"of all three, in their order": {
			component: "    patches: [" + target + "patch: {data: {x: stack, y: stack, z: stack}}}]\n" +
				"    parameters: {map: \"{'patches': [{'target': {'kind': 'ConfigMap'}, 'patch': {'data': {'y': " +
				"'map', 'z': 'map'}}}]}\"}\n",
			override: []any{map[string]any{"target": map[string]any{"name": "web"},
				"patch": map[string]any{"data": map[string]any{"z": "install"}}}},
			want: map[string]string{"x": "stack", "y": "map", "z": "install"}},
	} {
		got, err := patchedData(t, tc.component, tc.override)
		if err != nil || !maps.Equal(got, tc.want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestInvalidPatches(t *testing.T) {
	for component, want := range map[string]string{
		"    patches: [{target: {kind: ConfigMap}}]\n": "stack.yaml:10: component \"web\": field \"patches[0]\" " +
			"needs patch",
		"    patches: [{target: {kind: ConfigMap}, patch: 5}]\n": "field \"patches[0]\" needs an object, a list or a " +
			"text as patch",
		"    patches: [{patch: {data: {x: a}}}]\n": "needs a target, or must be an " +
			"object with kind and name",
		"    patches: [{target: {kind: ConfigMap}, patch: [{op: nothing}]}]\n":  "cannot be applied",
		"    patches: [{target: {kind: Deployment}, patch: {data: {x: a}}}]\n":  "matches no rendered object",
		"    patches: [{target: {kinds: Deployment}, patch: {data: {x: a}}}]\n": "did you mean \"kind\"?",
	} {
		if _, err := patchedData(t, component, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", component, err, want)
		}
	}
}
