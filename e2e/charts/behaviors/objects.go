package behaviors

import "strings"

// objects are about lists, repeated objects, namespaces, and what the API server changes.
var objects = []Behavior{
	{Name: "an object that is rendered twice",
		Files: map[string]string{"templates/a.yaml": configMap("a") + "---\n" + configMap("a")},
		Warnings: `component "my": shop/templates/a.yaml: ConfigMap "prod/a" is left out, because it is in ` +
			`shop/templates/a.yaml, too`},
	{Name: "a CRD that is a template, too",
		Files: map[string]string{"crds/a.yaml": definition("one"), "templates/a.yaml": definition("two")},
		Warnings: `component "my": shop/crds/a.yaml:1: CustomResourceDefinition.apiextensions.k8s.io ` +
			`"widgets.example.com" is left out, because it is in shop/templates/a.yaml, too`,
		InstallError: "cannot be imported into the current release"},
	{Name: "CRDs in a folder, with custom resources of the chart and a subchart", Files: map[string]string{
		"crds/more/b.yaml":              "# Licensed.\n---\n" + definition("of a folder"),
		"templates/a.yaml":              widget("a", "spec: {size: 1}\n"),
		"charts/cache/Chart.yaml":       "apiVersion: v2\nname: cache\nversion: 1.0.0\n",
		"charts/cache/templates/b.yaml": widget("b", "spec: {size: 2}\n"),
	}},
	{Name: "a List of several kinds", Files: map[string]string{"templates/a.yaml": `apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- {apiVersion: v1, kind: Secret, metadata: {name: b}}
`}},
	{Name: "a list with a name", Files: map[string]string{"templates/a.yaml": `apiVersion: v1
kind: ConfigMapList
metadata: {name: all}
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
`},
		InstallError: `unknown field "name" in io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta`},
	{Name: "the namespace of the release", Files: map[string]string{"templates/a.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
data: {service: {{ .Release.Service }}, revision: "{{ .Release.Revision }} {{ .Release.IsInstall }}"}
`}},
	{Name: "strings and data of a Secret", Files: map[string]string{"templates/a.yaml": `apiVersion: v1
kind: Secret
metadata: {name: a}
data:
  binary: AAEC
  both: dGhlaXJz
  long: |
    aGVsbG8g
    d29ybGQ=
stringData:
  both: ours
  text: |
    one
`}},
	Workload,
}

// Workload is a chart of several kinds of objects. A label that Helm adds to each object is
// rendered for some of them.
var Workload = Behavior{Name: "a workload, what it needs, and a custom resource", Files: map[string]string{
	"crds/a.yaml": definition("of a workload"),
	"templates/web.yaml": `apiVersion: v1
kind: ServiceAccount
metadata: {name: web, labels: {app.kubernetes.io/managed-by: {{ .Release.Service }}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app.kubernetes.io/managed-by: {{ .Release.Service }}}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      volumes: [{name: config, configMap: {name: web, defaultMode: 0644, optional: true}}]
      containers:
      - name: main
        image: example.org/web:1
        ports: [{name: http, containerPort: 80}]
        env: [{name: A, value: "1"}, {name: B}]
        resources: {limits: {cpu: 1, memory: 1024Mi}, requests: {cpu: 0.5}}
        volumeMounts: [{name: config, mountPath: /config}]
`,
	"templates/settings.yaml": "{{- if true }}\n" + configMap("web") + "data:\n  text: |\n    one\n{{- end -}}",
	"templates/kept.yaml":     strings.Replace(keepBlock, "name: a", "name: kept", 1),
	"templates/login.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\ndata: {user: bWU=}\n" +
		"stringData:\n  url: |\n    http://example.org\n",
	"templates/widget.yaml": widget("web", "spec: {size: 1.50, mode: 0644, none: null, enabled: yes}\n"),
}}
