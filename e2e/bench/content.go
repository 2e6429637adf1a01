package main

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
)

// marked is the label of every object that peers install.
const marked = "bench.example.com/object"

// site is where one install goes.
type site struct {
	Namespace, Name string
	Folder          string // of the source
	DependsOn       *site
}

// content is what a folder of the source holds.
type content struct {
	name  string // of the objects
	value string // in the ConfigMap; a commit changes it
	fate  string // of the pods
	count int    // of ConfigMaps and nothing else, where it is not 0
	chart bool
}

// source is the whole tree, by folder.
type source map[string]content

// changed is the source with another value in some folders; all when none is named.
func (s source) changed(value string, folders ...string) source {
	out := source{}
	for folder, c := range s {
		if len(folders) == 0 || strings.Contains(" "+strings.Join(folders, " ")+" ", " "+folder+" ") {
			c.value = value
		}
		out[folder] = c
	}
	return out
}

// tree is the source as files: each folder is a stack, whose subfolder main/ is
// what other tools install.
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
		files["stacks/"+folder+"/stack.yaml"] = fmt.Sprintf("apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: app}\nspec:\n  version: 1.0.0\n  components:\n  - name: main\n    %s\n", component)
	}
	return artifacts.Files(files)
}

// manifests of a folder by file, in the order of their names in which they can be sent.
func (c content) manifests() map[string]string {
	if c.count > 0 {
		files := map[string]string{}
		for i := range c.count {
			value := "fixed"
			if i == 0 {
				value = c.value
			}
			// One file for each hundred, so that the number of files is not what is measured.
			files[fmt.Sprintf("%03d.yaml", i/100)] += "---\n" + configMap(fmt.Sprintf("c%04d", i), value)
		}
		return files
	}
	return map[string]string{
		"1-account.yaml":    object("v1", "ServiceAccount", c.name, ""),
		"2-configmap.yaml":  configMap(c.name, c.value),
		"3-service.yaml":    object("v1", "Service", c.name, "spec:\n  selector: {app: "+c.name+"}\n  ports: [{port: 80, targetPort: 8080}]\n"),
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
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, labels: {%s: \"true\"}}\n%s", version, kind, name, marked, rest)
}

// templates is how many templates the chart of the Helm scenario has.
const templates = 30

// chartFiles is a chart with a Deployment, a Service, an account, and ConfigMaps
// that are written with what charts use.
func chartFiles(c content) map[string]string {
	files := map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: app\nversion: 1.0.0\n",
		"values.yaml": fmt.Sprintf("name: %s\nvalue: %q\nlabels: {team: one, tier: two}\nitems: [a, b, c]\n", c.name, c.value),
		"templates/_helpers.tpl": `{{- define "app.labels" -}}
` + marked + `: "true"
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
