package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A stack that reads the variable cluster is rendered with the KsctlCluster in one of the files, or
// not at all.
func TestRenderWithCluster(t *testing.T) {
	const install = "apiVersion: apps.ksctl.com/v1\nkind: KsctlInstall\nmetadata: {name: web, namespace: team}\n" +
		"spec:\n  sourceRef: {kind: GitRepository, name: fleet}\n  stack: demo\n"
	const cluster = "apiVersion: cluster.ksctl.com/v1\nkind: KsctlCluster\n" +
		"metadata: {name: prod, namespace: fleet, labels: {env: eu}, uid: u, resourceVersion: '5'}\n" +
		"status: {kubernetesVersion: v1.36.3, facts: {region: eastus}}\n"
	files := map[string]string{
		"stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec:\n" +
			"  version: 1.0.0\n  components:\n  - name: web\n    manifests: [web]\n    fields:\n" +
			"    - {target: {kind: ConfigMap}, path: data, " +
			"value: \"{'env': cluster.?labels.?env.orValue('none'), " +
			"'region': cluster.?facts.?region.orValue('none')}\"}\n",
		"web/web.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {}\n",
		"install.yaml": install + "  clusterRef: {name: prod, namespace: fleet}\n",
		"selector.yaml": strings.Replace(install, "namespace: team", "namespace: fleet", 1) +
			"  clusterSelector: {matchLabels: {env: eu}}\n",
		"here.yaml":       install,
		"cluster.yaml":    cluster,
		"other.yaml":      strings.Replace(cluster, "name: prod", "name: other", 1),
		"elsewhere.yaml":  strings.Replace(cluster, "namespace: fleet", "namespace: team", 1),
		"misspelled.yaml": strings.Replace(cluster, "labels", "label", 1),
		"together.yaml":   install + "  clusterRef: {name: prod, namespace: fleet}\n---\n" + cluster,
	}
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	const known, missing = "env: eu\n  region: eastus\n", "give the KsctlCluster of the install with -f FILE"
	for names, want := range map[string]string{
		"install cluster":          known,
		"cluster install":          known,
		"install other cluster":    known,
		"together":                 known,
		"selector cluster":         known,
		"install":                  missing,
		"install other":            missing,
		"install elsewhere":        missing,
		"selector":                 missing,
		"here":                     "env: none\n  region: none\n",
		"here cluster":             "env: none\n  region: none\n",
		"selector cluster other":   "KsctlClusters prod and other are both for the install",
		"install cluster together": "together.yaml: there is another KsctlInstall in install.yaml",
		"cluster other":            "cluster.yaml, other.yaml: there is no KsctlInstall in this file",
		"install misspelled":       `field "metadata.label" is not known`,
	} {
		args := []string{"render", "--offline"}
		for name := range strings.FieldsSeq(names) {
			args = append(args, "-f", name+".yaml")
		}
		if got := run(t, args...); !strings.Contains(got, want) {
			t.Errorf("%s: got %s\nwant %s", names, got, want)
		}
	}
}
