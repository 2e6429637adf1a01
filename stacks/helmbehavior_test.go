package stacks_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// helmBehavior is a behavior of Helm that public charts depend on.
type helmBehavior struct {
	// templates are the files in the chart, except Chart.yaml.
	templates map[string]string
	// values is the content of a values file.
	values string
	// warning is a part of the only warning.
	warning string
}

const keepBlock = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  text: |+\n    one\n\n"

var helmBehaviors = map[string]helmBehavior{
	"text after a document start": {templates: map[string]string{
		"templates/a.yaml": "{{- if true }}\n---\n{{- if true -}}\n# Licensed.\n{{- end }}\n" + mapNamed("a") +
			"--- # and\n" + mapNamed("b") + "---" + mapNamed("c") + "{{- end }}\n"}},
	"an indented document start at the " +
		"beginning": {templates: map[string]string{"templates/a.yaml": "\n  ---\n" + mapNamed("a")}},
	"no newline at the end of a template": {templates: map[string]string{
		"templates/a.yaml": "{{- if true }}\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  text: " +
			"|\n    one\n{{- end -}}"}},
	"newlines that a block keeps": {templates: map[string]string{"templates/a.yaml": keepBlock,
		"templates/b.yaml": strings.Replace(keepBlock, "name: a", "name: b", 1) + "---\n" + mapNamed("c")}},
	"no newline at the end " +
		"of a CRD": {templates: map[string]string{"crds/a.yaml": strings.TrimSuffix(definition("widgets", "one"),
		"\n")}},
	"a key that is set several times": {
		templates: map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n " +
			" labels: {x: a}\n  labels: {y: b}\ndata: {k: one, k: two}\n"},
		warning: `component "my": shop/templates/a.yaml: the key "k" is set several times (line 7 of the rendered template); its last value is used` + "\n" +
			`component "my": shop/templates/a.yaml: the key "labels" is set several times (line 6 of the rendered template); its last value is used`},
	"an object that is rendered twice": {templates: map[string]string{"templates/a.yaml": mapNamed("a") + "---\n" +
		mapNamed("a")},
		warning: `component "my": shop/templates/a.yaml: ConfigMap "prod/a" is left out, because it is in shop/templates/a.yaml, too`},
	"a CRD that is a template, too": {templates: map[string]string{"crds/a.yaml": definition("widgets", "one"),
		"templates/a.yaml": definition("widgets", "two")},
		warning: `component "my": shop/crds/a.yaml:1: CustomResourceDefinition.apiextensions.k8s.io "widgets.example.com" is left out, because it is in shop/templates/a.yaml, too`},
	"a list with a name": {templates: map[string]string{
		"templates/a.yaml": "apiVersion: v1\nkind: ConfigMapList\nmetadata: {name: all}\nitems:\n- {apiVersion: v1, " +
			"kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n"}},
	"booleans as keys of values": {templates: map[string]string{"values.yaml": "on: {a: 1, b: 1}\nn: default\n",
		"templates/a.yaml": valuesTemplate},
		values: "on: {a: 2}\nno: given\n'y': quoted\n"},
}

func mapNamed(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}

func definition(plural, description string) string {
	return fmt.Sprintf("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: "+
		"%[1]s.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n"+
		"  names: {kind: Widget, plural: %[1]s}\n  versions:\n  - name: v1\n    schema:\n      openAPIV3Schema:\n   "+
		"     description: |\n          %[2]s\n", plural, description)
}

// Charts of these behaviors render to the same objects as with Helm.
func TestRenderMatchesHelmBehaviors(t *testing.T) {
	for name, b := range helmBehaviors {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"shop/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
				"values.yaml": b.values}
			for file, content := range b.templates {
				files["shop/"+file] = content
			}
			root := writeTree(t, files)
			want := helmTemplateYAML(t, filepath.Join(root, "shop"), "my", "prod", b.values)
			inline := strings.ReplaceAll("\n"+strings.TrimSuffix(b.values, "\n"), "\n", "\n        ")
			if b.values == "" {
				inline = " {}"
			}
			for form, helm := range map[string]string{"file": "      valuesFiles: [values.yaml]\n",
				"inline": "      values:" + inline + "\n"} {
				writeFile(t, filepath.Join(root, stacks.FileName),
					components("- name: my\n    namespace: prod\n    helm:\n      chart: shop\n"+helm))
				result := mustRender(t, stacks.Request{Root: root, Stack: "demo",
					Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0",
						APIVersions: stacks.BuiltinAPIVersions()}})
				compareObjects(t, resultByName(t, result, "prod"), want)
				if got := strings.Join(result.Warnings, "\n"); b.warning != "" && got != b.warning {
					t.Errorf("%s: the warnings are %q, want %q", form, got, b.warning)
				}
			}
		})
	}
}
