package stacks_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/convert/helmtemplate"
)

// helmProgram returns a program that kustomize can call as helm. It passes its arguments to this
// process, through named pipes: the test binary takes a second to start with the race detector.
func helmProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program, input, output := filepath.Join(dir, "helm"), filepath.Join(dir, "input"), filepath.Join(dir, "output")
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\n' \"$@\" >'%s'\n{ read -r code; cat; } <'%s'\nexit \"$code\"\n",
		input, output)
	err := os.WriteFile(program, []byte(script), 0o700)
	for _, pipe := range []string{input, output} {
		err = errors.Join(err, syscall.Mkfifo(pipe, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	var server sync.WaitGroup
	server.Go(func() {
		for {
			args, err := os.ReadFile(input)
			if err != nil || len(args) == 0 {
				return
			}
			var stdout bytes.Buffer
			code := 0
			if err := helmCommand(strings.Split(strings.TrimSuffix(string(args), "\n"), "\n"), &stdout); err != nil {
				t.Errorf("helm: %v", err)
				code = 1
			}
			if os.WriteFile(output, fmt.Appendf(nil, "%d\n%s", code, &stdout), 0o600) != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		if err := os.WriteFile(input, nil, 0o600); err != nil {
			t.Error(err)
		}
		server.Wait()
	})
	return program
}

// helmCommand does what kustomize calls helm for: version --short, and template.
func helmCommand(args []string, out io.Writer) error {
	if args[0] == "version" {
		_, err := fmt.Fprintln(out, "v4.3.1")
		return err
	}
	flags := flag.NewFlagSet("template", flag.ContinueOnError)
	o := helmtemplate.Options{Release: "release-name", APIVersions: stacks.BuiltinAPIVersions()}
	flags.StringVar(&o.Namespace, "namespace", "default", "")
	flags.StringVar(&o.Release, "name-template", o.Release, "")
	flags.StringVar(&o.KubeVersion, "kube-version", stacks.DefaultKubeVersion, "")
	includeCRDs := flags.Bool("include-crds", false, "")
	noHooks := flags.Bool("no-hooks", false, "")
	_ = flags.Bool("generate-name", false, "")
	flags.Func("api-versions", "", func(v string) error { o.APIVersions = append(o.APIVersions, v); return nil })
	values := map[string]any{}
	flags.Func("f", "", func(file string) error {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		more, err := loader.LoadValues(bytes.NewReader(data))
		values = loader.MergeMaps(values, more)
		return err
	})
	// The flags of helm may follow its arguments.
	var positional []string
	for args = args[1:]; len(args) > 0; args = flags.Args() {
		if !strings.HasPrefix(args[0], "-") {
			positional, args = append(positional, args[0]), args[1:]
		}
		if err := flags.Parse(args); err != nil {
			return err
		}
	}
	if len(positional) == 2 {
		o.Release = positional[0]
	}
	var err error
	if o.Values, err = yaml.Marshal(values); err != nil {
		return err
	}
	objects, err := helmtemplate.Render(positional[len(positional)-1], o)
	for _, object := range objects {
		u := unstructured.Unstructured{Object: object}
		if u.GetKind() == "CustomResourceDefinition" && !*includeCRDs ||
			u.GetAnnotations()["helm.sh/hook"] != "" && *noHooks {
			continue
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return err
}

// kustomizeBuild builds the folder k with kustomize and helm. It returns YAML by kind/name.
func kustomizeBuild(t *testing.T, root, namespace string) map[string]string {
	t.Helper()
	options := krusty.MakeDefaultOptions()
	options.PluginConfig.HelmConfig = types.HelmConfig{Enabled: true, Command: helmProgram(t)}
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "k"))
	if err != nil {
		t.Fatal(err)
	}
	var objects []map[string]any
	for _, res := range built.Resources() {
		object, err := res.Map()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objectsByName(t, objects, namespace)
}

// showTemplate is a template that shows the values, the release and the capabilities.
const showTemplate = `apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-values, labels: {release: {{ .Release.Name }}}}
data:
  namespace: {{ .Release.Namespace }}
  values: {{ .Values | toJson | quote }}
  widgets: {{ .Capabilities.APIVersions.Has "example.com/v1/Widget" | quote }}
`

// kustomizeChartFiles returns the files of a kustomization in the folder k, with two vendored
// charts.
func kustomizeChartFiles(kustomization string) map[string]string {
	return map[string]string{
		"k/kustomization.yaml":                kustomization,
		"k/charts/demo/Chart.yaml":            "apiVersion: v2\nname: demo\nversion: 1.2.3\n",
		"k/charts/demo/values.yaml":           "a: 1\nb: {c: yes, d: [1, 2]}\ngone: here\nquoted: \"on\"\n",
		"k/charts/demo/templates/values.yaml": showTemplate,
		"k/charts/demo/templates/account.yaml": "apiVersion: v1\nkind: ServiceAccount\n" +
			"metadata: {name: own, namespace: {{ .Release.Namespace }}}\n",
		"k/charts/demo/templates/hook.yaml": "apiVersion: batch/v1\nkind: Job\n" +
			"metadata: {name: hook, annotations: {helm.sh/hook: pre-install}}\n",
		"k/charts/demo/templates/NOTES.txt": "notes\n",
		"k/charts/demo/crds/widgets.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
			"metadata: {name: widgets.example.com}\n",
		"k/charts/other-2.0.0/other/Chart.yaml":       "apiVersion: v2\nname: other\nversion: 2.0.0\n",
		"k/charts/other-2.0.0/other/values.yaml":      "other: true\n",
		"k/charts/other-2.0.0/other/templates/a.yaml": showTemplate,
		"k/site.yaml": "a: 2\nb: {c: no, e: 0x10}\nsite: true\n",
		"k/more.yaml": "a: 3\ngone: null\n",
		"k/web.yaml":  web,
	}
}

// Charts of a kustomization render to the same objects as with kustomize and helm.
func TestKustomizeChartsMatchKustomize(t *testing.T) {
	tests := map[string]string{
		"several charts": "helmCharts:\n- {name: demo, releaseName: one, skipHooks: true}\n" +
			"- {name: other, version: 2.0.0, repo: x}\n",
		"deprecated field": "helmChartInflationGenerator:\n" +
			"- {chartName: demo, releaseName: old, values: site.yaml, valuesLocal: {a: 7}}\n",
		"transformers": `namespace: shop
namePrefix: pre-
labels: [{pairs: {team: a}}]
resources: [web.yaml]
configMapGenerator: [{name: settings, literals: [A=1]}]
helmCharts:
- {name: demo, releaseName: one, skipHooks: true}
components: [component]
patches:
- target: {kind: ConfigMap, name: one-values}
  patch: '[{"op": "add", "path": "/data/patched", "value": "yes"}]'
replacements:
- source: {kind: ConfigMap, name: one-values, fieldPath: data.namespace}
  targets: [{select: {kind: Deployment}, fieldPaths: [metadata.annotations.from], options: {create: true}}]
`,
		"overlay":        "namespace: shop\nresources: [base]\nnameSuffix: -x\n",
		"nested overlay": "resources: [middle]\nnamespace: outer\n",
	}
	for name, chart := range map[string]string{
		"defaults":       "name: demo",
		"release":        "name: demo, releaseName: shop, namespace: own",
		"name template":  "name: demo, nameTemplate: shop",
		"values file":    "name: demo, valuesFile: site.yaml",
		"more files":     "name: demo, valuesFile: site.yaml, additionalValuesFiles: [more.yaml]",
		"inline":         "name: demo, valuesInline: {a: 5, b: {d: [3], f: off}, n: null, gone: null}",
		"inline, file":   "name: demo, valuesFile: site.yaml, valuesInline: {a: 5, x: 1.50, y: 'on'}",
		"inline, merge":  "name: demo, valuesFile: site.yaml, valuesMerge: merge, valuesInline: {a: 5, z: 1}",
		"inline replace": "name: demo, valuesFile: site.yaml, valuesMerge: replace, valuesInline: {z: 1}",
		"CRDs":           "name: demo, includeCRDs: true",
		"capabilities":   "name: demo, apiVersions: [example.com/v1/Widget], kubeVersion: v1.29.0",
		"version":        "name: other, repo: 'https://charts.example.com', version: 2.0.0",
	} {
		tests[name] = "helmCharts: [{skipHooks: true, " + chart + "}]\n"
	}
	for name, kustomization := range tests {
		t.Run(name, func(t *testing.T) {
			files := kustomizeChartFiles(kustomization)
			files["k/component/kustomization.yaml"] = `apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches: [{target: {kind: ConfigMap}, patch: '[{"op": "add", "path": "/data/component", "value": "a"}]'}]
`
			files["k/base/kustomization.yaml"] = "helmGlobals: {chartHome: vendored}\n" +
				"helmCharts: [{name: demo, skipHooks: true}]\n"
			files["k/middle/kustomization.yaml"] = "resources: [../base]\nnamespace: inner\n"
			for file, text := range files {
				if rest, ok := strings.CutPrefix(file, "k/charts/demo/"); ok {
					files["k/base/vendored/demo/"+rest] = text
				}
			}
			files["stack.yaml"] = components("- {name: app, namespace: default, kustomize: {path: k}}")
			root := writeTree(t, files)
			want := kustomizeBuild(t, root, "default")
			delete(want, "Job/hook") // the deprecated field has no skipHooks
			result := mustRender(t, stacks.Request{Root: root, Stack: "demo", Capabilities: chartCapabilities})
			compareObjects(t, resultByName(t, result, "default"), want)
		})
	}
}

var chartCapabilities = stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion,
	APIVersions: stacks.BuiltinAPIVersions()}

// A chart as helm create makes it renders to the same objects as with kustomize and helm.
func TestKustomizeChartMatchesCreatedChart(t *testing.T) {
	root := writeTree(t, map[string]string{
		"stack.yaml": components("- {name: app, namespace: shop, kustomize: {path: k}}"),
		"k/kustomization.yaml": "namespace: shop\nimages: [{name: nginx, newTag: '9'}]\n" +
			"helmCharts: [{name: web, releaseName: my, skipHooks: true, valuesInline: {ingress: {enabled: true}}}]\n",
		"k/charts/README.md": "charts",
	})
	if _, err := chartutil.Create("web", filepath.Join(root, "k", "charts")); err != nil {
		t.Fatal(err)
	}
	want := kustomizeBuild(t, root, "shop")
	result := mustRender(t, stacks.Request{Root: root, Stack: "demo", Capabilities: chartCapabilities})
	compareObjects(t, resultByName(t, result, "shop"), want)
}
