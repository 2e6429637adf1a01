package stacks_test

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

func TestContributeIsForFields(t *testing.T) {
	for name, tc := range map[string]struct{ component, want string }{
		"a chart": {"helm: {chart: ./c}", "the component cannot have helm"},
		"a namespace": {"manifests: [a.yaml], namespace: x, createNamespace: true",
			"the component cannot have createNamespace"},
		"readiness":          {"manifests: [a.yaml], readyExpr: 'true'", "the component cannot have readyExpr"},
		"common labels":      {"manifests: [a.yaml], commonMetadata: {labels: {a: b}}", "cannot have commonMetadata"},
		"before its removal": {"manifests: [a.yaml], preRemove: true", "the component cannot have preRemove"},
	} {
		t.Run(name, func(t *testing.T) {
			root := writeTree(t, map[string]string{"a.yaml": configMap, "stack.yaml": components(
				"- {name: a, contribute: true, " + tc.component + "}")})
			_, err := stacks.Load(root, "", "demo")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Error(err)
			}
		})
	}
}

func TestRenderContributions(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: x"
	many := strings.Builder{}
	for range 129 {
		many.WriteString("1, ")
	}
	for name, tc := range map[string]struct{ manifest, want string }{
		"a key":        {manifest: head + "}\ndata: {k: v}\n"},
		"a label":      {manifest: head + ", labels: {k: v}}\n"},
		"no fields":    {manifest: head + "}\n", want: "sets no field in the object"},
		"an empty map": {manifest: head + "}\ndata: {}\n", want: "sets no field in the object"},
		"too many fields": {manifest: head + "}\nlist: [" + many.String() + "]\n",
			want: "has 129 fields, but a contribution has at most 128"},
	} {
		t.Run(name, func(t *testing.T) {
			root := writeTree(t, map[string]string{"a.yaml": tc.manifest,
				"stack.yaml": components("- {name: a, contribute: true, manifests: [a.yaml]}")})
			common := &stacks.CommonMetadata{Labels: map[string]string{"team": "a"}}
			out, err := stacks.Render(t.Context(), stacks.Request{Root: root, Stack: "demo",
				Choices: stacks.Choices{CommonMetadata: common}})
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "a.yaml") {
					t.Error(err)
				}
				return
			}
			if err != nil || !out.Components[0].Contribute ||
				strings.Contains(string(out.Components[0].Objects[0].Manifest), "team") {
				t.Errorf("%+v, %v", out.Components, err)
			}
		})
	}
}
