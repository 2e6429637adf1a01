package behaviors

import "strings"

const keepBlock = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  text: |+\n    one\n\n"

// documents are about the documents of a template, and where they end.
var documents = []Behavior{
	{Name: "text after a document start", Files: map[string]string{"templates/a.yaml": "{{- if true }}\n---\n" +
		"{{- if true -}}\n# Licensed.\n{{- end }}\n" + configMap("a") + "--- # and\n" + configMap("b") +
		"---" + configMap("c") + "{{- end }}\n"}},
	{Name: "an indented document start at the beginning",
		Files: map[string]string{"templates/a.yaml": "\n  ---\n" + configMap("a")}},
	{Name: "comments and empty documents", Files: map[string]string{
		"templates/a.yaml": "# Licensed.\n---\n# Nothing.\n---\n\n---\n" + configMap("a") + "# The end.\n---\n",
		"templates/b.yaml": "{{/* Nothing. */}}\n",
		"templates/c.yaml": "---\n# Nothing but\n# comments.\n"}},
	{Name: "no newline at the end of a template", Files: map[string]string{
		"templates/a.yaml": "{{- if true }}\napiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: a}\ndata:\n  text: |\n    one\n{{- end -}}"}},
	{Name: "newlines that a block keeps", Files: map[string]string{"templates/a.yaml": keepBlock,
		"templates/b.yaml": strings.Replace(keepBlock, "name: a", "name: b", 1) + "---\n" + configMap("c")}},
	{Name: "no newline at the end of a CRD",
		Files: map[string]string{"crds/a.yaml": strings.TrimSuffix(definition("one"), "\n")}},
	{Name: "carriage returns", Files: map[string]string{"templates/a.yaml": strings.ReplaceAll(
		configMap("a")+"data:\n  text: |\n    one\n    two\n  folded: >-\n    three\n    four\n---\n"+configMap("b"),
		"\n", "\r\n")}},
	{Name: "files with other names", Files: map[string]string{
		"templates/a.json":    `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}`,
		"templates/b.txt":     configMap("b"),
		"templates/c":         configMap("c"),
		"templates/_d.yaml":   `{{ define "d" }}defined{{ end }}` + "\n" + configMap("d"),
		"templates/e.yaml":    configMap("e") + `data: {d: {{ include "d" . }}}` + "\n",
		"templates/NOTES.txt": "Thank you for installing {{ .Chart.Name }}.\n"}},
}
