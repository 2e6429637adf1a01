package main

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
)

// objectLabel is the label of every object that peers install.
const objectLabel = "bench.example.com/object"

// installSpec describes one install, independent of the peer.
type installSpec struct {
	Namespace, Name string
	Folder          string // folder of the source
	DependsOn       *installSpec
}

// content describes the objects of one folder of the source.
type content struct {
	name  string // name of the objects
	value string // value in the ConfigMap; a commit changes it
	fate  string // fate of the pods
	count int    // if not 0, the folder has this number of ConfigMaps and no other objects
	chart bool   // the folder is a Helm chart
	kind  bool   // the stack serves the kind App
}

// source is the whole source tree, by folder.
type source map[string]content

// withValue returns a copy of the source with another value in the given folders, or in all folders
// if none is given.
func (s source) withValue(value string, folders ...string) source {
	out := source{}
	for folder, c := range s {
		if len(folders) == 0 || slices.Contains(folders, folder) {
			c.value = value
		}
		out[folder] = c
	}
	return out
}

// tree returns the source as files. Each folder is a stack; the other peers install its subfolder
// main/.
func (s source) tree() fs.FS {
	files := map[string]string{}
	for folder, c := range s {
		component := "manifests: [main/]"
		if c.chart {
			component = "helm: {chart: ./chart}"
			for name, text := range chartFiles(c) {
				files["stacks/"+folder+"/chart/"+name] = text
			}
		} else {
			for name, text := range c.manifests() {
				files["stacks/"+folder+"/main/"+name] = text
			}
		}
		serves := ""
		if c.kind {
			serves = servedKind
		}
		files["stacks/"+folder+"/stack.yaml"] = fmt.Sprintf("apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: "+
			"{name: app}\nspec:\n  version: 1.0.0\n  components:\n  - name: main\n    %s\n%s", component, serves)
	}
	return artifacts.Files(files)
}

// manifests returns the manifests of a folder by file name. In the order of the names, each object
// comes after the objects that it needs.
func (c content) manifests() map[string]string {
	if c.count > 0 {
		files := map[string]string{}
		for i := range c.count {
			value := "fixed"
			if i == 0 {
				value = c.value
			}
			// 100 objects per file, so that the number of files does not dominate the measurement.
			files[fmt.Sprintf("%03d.yaml", i/100)] += "---\n" + configMap(fmt.Sprintf("c%04d", i), value)
		}
		return files
	}
	return map[string]string{
		"1-account.yaml":   object("v1", "ServiceAccount", c.name, ""),
		"2-configmap.yaml": configMap(c.name, c.value),
		"3-service.yaml": object("v1", "Service", c.name, "spec:\n  selector: {app: "+c.name+
			"}\n  ports: [{port: 80, targetPort: 8080}]\n"),
		"4-deployment.yaml": object("apps/v1", "Deployment", c.name, c.deployment()),
	}
}

func (c content) deployment() string {
	annotations := ""
	if c.fate != "" {
		annotations = fmt.Sprintf(", annotations: {%s: %s}", cluster.FateAnnotation, c.fate)
	}
	return fmt.Sprintf(`spec:
  replicas: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}%[2]s}
    spec:
      serviceAccountName: %[1]s
      containers:
      - name: main
        image: registry.example.com/app:1.0.0
        ports: [{containerPort: 8080}]
        envFrom: [{configMapRef: {name: %[1]s}}]
        resources: {requests: {cpu: 10m, memory: 16Mi}}
`, c.name, annotations)
}

func configMap(name, value string) string {
	return object("v1", "ConfigMap", name, fmt.Sprintf("data: {value: %q}\n", value))
}

func object(version, kind, name, rest string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, labels: {%s: \"true\"}}\n%s", version, kind,
		name, objectLabel, rest)
}

// templates is the number of templates in the chart of the Helm scenario.
const templates = 30

// chartFiles returns a chart with a Deployment, a Service, a ServiceAccount, and ConfigMaps that
// use typical template functions.
func chartFiles(c content) map[string]string {
	files := map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n",
		"values.yaml": fmt.Sprintf("name: %s\nvalue: %q\nlabels: {team: one, tier: two}\nitems: [a, b, c]\n", c.name,
			c.value),
		"templates/_helpers.tpl": `{{- define "app.labels" -}}
` + objectLabel + `: "true"
{{- range $k, $v := .Values.labels }}
{{ $k }}: {{ $v | quote }}
{{- end }}
{{- end -}}
`,
	}
	for name, text := range c.manifests() {
		if !strings.Contains(name, "configmap") {
			files["templates/"+name] = text
		}
	}
	for i := range templates - 3 {
		value := "fixed"
		if i == 0 {
			value = "{{ .Values.value }}"
		}
		files[fmt.Sprintf("templates/c%02d.yaml", i)] = fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Values.name }}{{ if %[1]d }}-%[1]d{{ end }}
  labels: {{- include "app.labels" . | nindent 4 }}
data:
  value: %[2]q
{{- range $i, $item := .Values.items }}
  item-{{ $i }}: {{ printf "%%s-%%d" $item $i | quote }}
{{- end }}
`, i, value)
	}
	return files
}
