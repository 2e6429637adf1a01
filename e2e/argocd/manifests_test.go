package argocd_test

import "fmt"

const stack = `apiVersion: apps.ksctl.com/v1
kind: Stack
metadata: {name: app}
spec:
  version: 1.0.0
  components:
  - {name: base, manifests: [base/]}
  - {name: extra, manifests: [extra/], dependsOn: [base]}
`

const source = `apiVersion: apps.ksctl.com/v1
kind: KsctlSource
metadata: {name: fleet}
spec:
  interval: 2s
  git:
    url: REPO
`

// installManifest has durations and lists like users write them, not in canonical form.
const installManifest = `apiVersion: apps.ksctl.com/v1
kind: KsctlInstall
metadata: {name: app}
spec:
  interval: 60m
  retryInterval: 1s
  timeout: 1h30m
  sourceRef: {kind: KsctlSource, name: fleet}
  path: ./stacks
  stack: app
  serviceAccountName: deployer
  components:
  - name: base
    override:
      patches:
      - target: {kind: ConfigMap}
        patch: |
          - {op: add, path: /data/site, value: e2e}
  drift:
    ignore:
    - {target: {kind: Deployment}, paths: [/spec/replicas]}
  guard: {maxDeletes: 10, maxDeletePercent: 100}
`

const removeExtraManifest = `apiVersion: apps.ksctl.com/v1
kind: KsctlRemove
metadata: {name: without-extra}
spec:
  interval: 30m
  timeout: 600s
  installRef: {name: app}
  components: [extra]
  keep:
  - {kind: PersistentVolumeClaim}
`

// configMap returns a ConfigMap with the label by which Argo CD can track objects, which a chart
// may set to the name of an Application.
func configMap(name, instance string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  labels: "+
		"{app.kubernetes.io/instance: %q}\ndata: {value: \"1\"}\n", name, instance)
}

// deployment returns a Deployment whose pods have a fate.
func deployment(name, fate string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s}
      annotations: {e2e.ksctl.com/fate: %[2]q}
    spec:
      containers: [{name: main, image: example.com/main:1}]
`, name, fate)
}

// content returns a stack, and files that are synced.
func content(instance string, synced map[string]string) map[string]string {
	files := map[string]string{"stacks/app/stack.yaml": stack, "stacks/app/base/base.yaml": configMap("base", instance),
		"stacks/app/extra/extra.yaml": configMap("extra", instance)}
	for name, content := range synced {
		files["synced/"+name] = content
	}
	return files
}
