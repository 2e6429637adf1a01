// Package behaviors has a small chart for each behavior of Helm that public charts depend on. Tests
// compare what Helm and we make of them: the rendered objects, and the objects that the API server
// stores.
package behaviors

import (
	"maps"
	"strings"
)

// Group is the API group of the custom resources in the charts.
const Group = "example.com"

// Behavior is one behavior of Helm.
type Behavior struct {
	Name string
	// Files are the files of the chart by path. The default of Chart.yaml has no dependencies.
	Files map[string]string
	// Values is the content of a values file.
	Values string
	// Warnings are all warnings of our render, one a line. Empty means that they do not matter.
	Warnings string
	// InstallError is a part of the error of helm install, if only helm template accepts the chart.
	InstallError string
}

// Chart returns the files of the chart with another API group for its custom resources, so that
// installs in one cluster do not share definitions.
func (b Behavior) Chart(group string) map[string]string {
	out := map[string]string{"Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n"}
	maps.Copy(out, b.Files)
	for name, content := range out {
		out[name] = strings.ReplaceAll(content, Group, group)
	}
	return out
}

// All returns the behaviors.
func All() []Behavior {
	var out []Behavior
	for _, part := range [][]Behavior{documents, keys, scalars, nulls, values, objects, hooks} {
		out = append(out, part...)
	}
	return out
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}

// definition returns a CustomResourceDefinition of the kind Widget, whose objects may have any
// field. It ends with a line of the description.
func definition(description string) string {
	return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.` + Group + `}
spec:
  group: ` + Group + `
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
        description: |
          ` + description + "\n"
}

// widget returns a custom resource with additional lines.
func widget(name, lines string) string {
	return "apiVersion: " + Group + "/v1\nkind: Widget\nmetadata: {name: " + name + "}\n" + lines
}

// valuesTemplate renders all values of a chart.
const valuesTemplate = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Chart.Name }}}\ndata: {values: {{ " +
	".Values | toJson | quote }}}\n"
