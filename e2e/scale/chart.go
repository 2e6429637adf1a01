package main

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/ksctl/gitops/e2e/cluster/artifacts"
)

// largeChart returns a source with a stack of one Helm component with ten objects. One object
// contains the value.
func largeChart(value string) fs.FS {
	return tree(configMaps(6, value) + `---
apiVersion: v1
kind: Secret
metadata: {name: "{{ .Values.name }}"}
stringData: {password: secret}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: "{{ .Values.name }}"}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Values.name }}"}
spec: {selector: {app: "{{ .Values.name }}"}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Values.name }}"}
spec:
  replicas: 1
  selector: {matchLabels: {app: "{{ .Values.name }}"}}
  template:
    metadata: {labels: {app: "{{ .Values.name }}"}}
    spec: {containers: [{name: main, image: "example.com/app:1"}]}
`)
}

// smallChart returns a source with a stack of one Helm component with n ConfigMaps.
func smallChart(n int) fs.FS { return tree(configMaps(n, "fixed")) }

// configMaps returns templates of n ConfigMaps. The first contains the value.
func configMaps(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b,
			"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Values.name }}-%d\"}\ndata: {value: %q}\n", i,
			value)
		value = "fixed"
	}
	return b.String()
}

// tree returns a source with a stack "app" of one component with one template.
func tree(template string) fs.FS {
	return artifacts.Files(map[string]string{
		"stacks/app/stack.yaml": `apiVersion: apps.ksctl.com/v1
kind: Stack
metadata: {name: app}
spec:
  version: 1.0.0
  components:
  - name: main
    helm: {chart: ./chart}
`,
		"stacks/app/chart/Chart.yaml":         "apiVersion: v2\nname: app\nversion: 1.0.0\n",
		"stacks/app/chart/values.yaml":        "name: none\n",
		"stacks/app/chart/templates/all.yaml": template,
	})
}
