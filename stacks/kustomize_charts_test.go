package stacks_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/sops"
)

// kustomizeChartRequest is a request for a kustomization with charts, see kustomizeChartFiles.
func kustomizeChartRequest(t *testing.T, kustomization string, more map[string]string) stacks.Request {
	t.Helper()
	files := kustomizeChartFiles(kustomization)
	files["stack.yaml"] = components("- {name: app, namespace: default, kustomize: {path: k}}")
	maps.Copy(files, more)
	return stacks.Request{Root: writeTree(t, files), Stack: "demo", Capabilities: chartCapabilities}
}

// Charts that cannot be rendered are rejected with file and line, and with what to do.
func TestKustomizeRejectsCharts(t *testing.T) {
	t.Parallel()
	const file = `k/kustomization.yaml:2: component "app": field "helmCharts[0]`
	const dependency = "dependencies: [{name: sub, version: 1.0.0, repository: 'https://example.com'}]\n"
	many := strings.Repeat("- {name: demo}\n", 101)
	for name, test := range map[string]struct {
		kustomization string
		more          map[string]string
		want          string
	}{
		"not vendored": {kustomization: "helmCharts:\n" +
			"- {name: web, repo: 'https://user:secret@example.com', version: 1.0.0}\n",
			want: file + `.name" names a chart that is not in the source, and nothing is fetched while rendering: there is ` +
				`no folder k/charts/web-1.0.0/web; vendor the chart (helm pull --untar --untardir k/charts/web-1.0.0) ` +
				`and commit it`},
		"wrong folder": {kustomization: "helmCharts:\n- {name: demo}\nhelmGlobals: {chartHome: vendored}\n",
			want: file + `.name" names a chart that is not in the source, and nothing is fetched while rendering: there is ` +
				`no folder k/vendored/demo; vendor the chart (helm pull --untar --untardir k/vendored) and commit it`},
		"outside": {kustomization: "helmCharts:\n- {name: demo}\nhelmGlobals: {chartHome: ../../x}\n",
			want: file + `.name" names a chart outside the source: the path "../../x/demo" leaves the source`},
		"absolute": {kustomization: "helmCharts:\n- {name: demo}\nhelmGlobals: {chartHome: /charts}\n",
			want: file + `.name" names a chart outside the source: the path "/charts/demo" is absolute`},
		"no name": {kustomization: "helmCharts:\n- {releaseName: web}\n", want: file + `.name" is missing`},
		"typo": {kustomization: "helmCharts:\n- {name: demo, relaseName: web}\n",
			want: file + `.relaseName" is not known; did you mean "releaseName"?`},
		"type": {kustomization: "helmCharts:\n- {name: demo, includeCRDs: maybe}\n",
			want: file + `.includeCRDs" must be true or false, not a string`},
		"merge": {kustomization: "helmCharts:\n- name: demo\n  valuesMerge: deep\n",
			want: `k/kustomization.yaml:3: component "app": field "helmCharts[0].valuesMerge" must be override, merge, ` +
				`replace, not "deep"`},
		"name template": {kustomization: "helmCharts:\n- {name: demo, nameTemplate: 'a-{{ randAlpha 3 }}'}\n",
			want: file + `.nameTemplate" is a template, which could make another name in each render; set releaseName`},
		"two names": {kustomization: "helmCharts:\n- {name: demo, nameTemplate: a, releaseName: b}\n",
			want: file + `.nameTemplate" is set, and so is releaseName; remove one of them`},
		"release name": {kustomization: "helmCharts:\n- {name: demo, releaseName: A_b}\n",
			want: `k/kustomization.yaml:2: component "app": chart k/charts/demo: releaseName must be a DNS name of at ` +
				`most 53 characters, not "A_b"`},
		"remote values": {kustomization: "helmCharts:\n- {name: demo, valuesFile: 'https://example.com/v.yaml'}\n",
			want: file + `.valuesFile": "https://example.com/v.yaml" is remote, and nothing is fetched`},
		"values elsewhere": {kustomization: "helmCharts:\n" +
			"- {name: demo, additionalValuesFiles: [site.yaml, ../v.yaml]}\n",
			more: map[string]string{"v.yaml": "a: 1\n"},
			want: file + `.additionalValuesFiles[1]": "../v.yaml" is outside the folder of its kustomization`},
		"invalid values": {kustomization: "helmCharts:\n- {name: demo, valuesFile: site.yaml, valuesInline: {a: 1}}\n",
			more: map[string]string{"k/site.yaml": "a: 1\nb: [\n"},
			want: `k/site.yaml:2: component "app": this is not valid YAML`},
		"schema": {kustomization: "helmCharts:\n- {name: demo, valuesInline: {a: text, c: 1}}\n",
			more: map[string]string{"k/charts/demo/values.schema.json": `{"properties":{"a":{"type":"integer"}}}`},
			want: `k/kustomization.yaml:2: component "app": chart k/charts/demo: value a must be integer, not string`},
		"schema key": {kustomization: "helmCharts:\n- {name: demo}\n",
			more: map[string]string{"k/charts/demo/values.schema.json": `{"properties":{"gone1":{}, "a":{}, "b":{}, ` +
				`"quoted":{}},"additionalProperties":false}`},
			want: `k/kustomization.yaml:2: component "app": chart k/charts/demo: value "gone" is not in its schema; did ` +
				`you mean "gone1"?`},
		"dependency": {kustomization: "helmCharts:\n- {name: demo}\n",
			more: map[string]string{
				"k/charts/demo/Chart.yaml": "apiVersion: v2\nname: demo\nversion: 1.2.3\n" + dependency,
				"k/charts/demo/Chart.lock": dependency + "digest: x\n"},
			want: `k/kustomization.yaml:2: component "app": chart k/charts/demo: its dependency sub 1.0.0 is not in its ` +
				`folder charts/, and nothing is fetched for a kustomization; vendor it (helm dependency build) and ` +
				`commit it`},
		"template": {kustomization: "helmCharts:\n- {name: demo}\n",
			more: map[string]string{"k/charts/demo/templates/x.yaml": "\n{{ fail \"a is required\" }}\n"},
			want: `k/charts/demo/templates/x.yaml:2: component "app": the template failed: `},
		"random": {kustomization: "helmCharts:\n- {name: demo}\n",
			more: map[string]string{"k/charts/demo/templates/x.yaml": "\n# {{ randAlphaNum 8 }}\n"},
			want: `k/charts/demo/templates/x.yaml:2: component "app": the template uses randAlphaNum, which is not ` +
				`allowed: the function depends on random numbers, so that each render would differ; set the value that ` +
				`it replaces, or render the chart as a helm component of the stack, which keeps what charts generate`},
		"certificate": {kustomization: "helmCharts:\n- {name: demo}\n",
			more: map[string]string{"k/charts/demo/templates/x.yaml": "# {{ (genCA \"ca\" 30).Cert }}\n"},
			want: `k/charts/demo/templates/x.yaml:1: component "app": the template uses genCA, which is not allowed`},
		"plugins": {kustomization: "generators: [plugins]\n",
			more: map[string]string{"k/plugins/kustomization.yaml": "helmCharts: [{name: demo}]\n"},
			want: `k/plugins/kustomization.yaml:1: component "app": field "helmCharts" is not allowed in a kustomization ` +
				`of generators, transformers or validators: a chart cannot render plugins; write the plugin as a file`},
		"two overlays": {kustomization: "resources: [a, b]\n",
			more: map[string]string{"k/a/kustomization.yaml": "resources: [../base]\nnamespace: a\n",
				"k/b/kustomization.yaml":    "resources: [../base]\nnamespace: b\n",
				"k/base/kustomization.yaml": "helmGlobals: {chartHome: ../charts}\nhelmCharts:\n- {name: demo}\n"},
			want: `k/base/kustomization.yaml:3: component "app": field "helmCharts": overlays with the namespaces "a" and ` +
				`"b" have this kustomization as their base; set the namespace of its charts, or make each overlay a ` +
				`component of the stack`},
		"many": {kustomization: "helmCharts:\n" + many,
			want: `k/kustomization.yaml:2: component "app": field "helmCharts": the build renders more than 100 charts`},
		"twice": {kustomization: "helmCharts:\n- {name: demo}\n- {name: demo}\n",
			want: `k/kustomization.yaml: component "app": the kustomization cannot be built: `},
		"large": {kustomization: "helmCharts:\n- {name: demo}\n",
			more: map[string]string{"k/charts/demo/templates/x.yaml": "{{ range until 20 }}\n---\napiVersion: v1\n" +
				"kind: ConfigMap\nmetadata: {name: x{{ . }}}\ndata: {x: {{ repeat 1000000 \"x\" }}}\n{{ end }}\n"},
			want: `k/kustomization.yaml:2: component "app": the chart k/charts/demo renders more than 16777216 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stacks.Render(t.Context(), kustomizeChartRequest(t, test.kustomization, test.more))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the message has the password of the repository: %v", err)
			}
		})
	}
}

// Hooks are left out, with a warning unless they are tests. A render that reads the cluster is
// marked.
func TestKustomizeChartsHaveNoHooks(t *testing.T) {
	result := mustRender(t, kustomizeChartRequest(t, "helmCharts: [{name: demo}]\n", map[string]string{
		"k/charts/demo/templates/test.yaml": "apiVersion: v1\nkind: Pod\n" +
			"metadata: {name: t, annotations: {helm.sh/hook: test}}\n"}))
	want := `component "app": k/charts/demo/templates/hook.yaml: Job.batch "hook" is skipped: it is a hook ` +
		`(pre-install)`
	if len(result.Warnings) != 1 || result.Warnings[0] != want {
		t.Errorf("warnings %q", result.Warnings)
	}
	if names := objectNames(result); slices.Contains(names, "hook") || slices.Contains(names, "t") {
		t.Errorf("objects %q", names)
	}
	if c := result.Components[0]; !c.ReadsCluster || c.Release != nil {
		t.Errorf("component %+v", c)
	}
}

// Charts render with the versions of the target, unless the kustomization sets others.
func TestKustomizeChartsHaveTargetCapabilities(t *testing.T) {
	for kustomization, want := range map[string]string{
		"helmCharts: [{name: demo}]\n": `v1.30.0 true`,
		"helmCharts: [{name: demo, kubeVersion: v1.29.1, apiVersions: [x.com/v2]}]\n": `v1.29.1 true`,
	} {
		req := kustomizeChartRequest(t, kustomization, map[string]string{
			"k/charts/demo/templates/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n" +
				"data: {c: '{{ .Capabilities.KubeVersion }} {{ .Capabilities.APIVersions.Has \"x.com/v1\" }}'}\n"})
		req.Capabilities = stacks.Capabilities{KubeVersion: "v1.30.0", APIVersions: []string{"x.com/v1"}}
		result := mustRender(t, req)
		if got := string(findObject(t, result, "ConfigMap", "c").Manifest); !strings.Contains(got, want) {
			t.Errorf("%s got %s, want %s", kustomization, got, want)
		}
	}
}

// A cached result is rendered again when a file of a chart, or of its values, changes.
func TestKustomizeChartsAreTraced(t *testing.T) {
	req := kustomizeChartRequest(t,
		"helmCharts: [{name: demo, valuesFile: site.yaml, additionalValuesFiles: [more.yaml]}]\n", nil)
	renders := 0
	renderer := stacks.NewRenderer(stacks.RendererOptions{
		OnRender: func(stacks.Request, time.Duration, error) { renders++ }})
	revision := 0
	render := func() string {
		revision++
		req.Digest = fmt.Sprint(revision)
		result, err := renderer.Render(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return asJSON(t, result.Components)
	}
	last := render()
	for file, text := range map[string]string{
		"k/site.yaml": "a: 20\nsite: true\n", "k/more.yaml": "gone: changed\n",
		"k/charts/demo/values.yaml":           "a: 1\nadded: true\n",
		"k/charts/demo/templates/added.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: added}\n",
		"k/charts/demo/templates/values.yaml": strings.Replace(showTemplate, "-values", "-changed", 1),
	} {
		before := renders
		if again := render(); again != last || renders != before {
			t.Errorf("before a change of %s, %d renders", file, renders-before)
		}
		writeFile(t, filepath.Join(req.Root, filepath.FromSlash(file)), text)
		if next := render(); next == last || renders != before+1 {
			t.Errorf("after a change of %s, %d renders, same result: %t", file, renders-before, next == last)
		} else {
			last = next
		}
	}
}

// Encrypted values and files of charts are decrypted, and all of them are listed at once.
func TestKustomizeChartsAreDecrypted(t *testing.T) {
	k := newKeyPair(t)
	req := kustomizeChartRequest(t,
		"helmCharts:\n- {name: demo, valuesFile: site.yaml, valuesInline: {b: 1}}\n"+
			"- {name: other, version: 2.0.0, repo: x, releaseName: o, additionalValuesFiles: [more.yaml]}\n",
		map[string]string{
			"k/site.yaml": k.encrypt(sops.YAML, "", "a: hunter2-site\n"),
			"k/more.yaml": k.encrypt(sops.YAML, "", "a: hunter2-more\n"),
			"k/charts/other-2.0.0/other/templates/x.yaml": k.encrypt(sops.YAML, "^data$",
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {x: hunter2-template}\n"),
		})
	_, err := stacks.Render(t.Context(), req)
	encrypted, ok := errors.AsType[*stacks.EncryptedError](err)
	if !ok || len(encrypted.Files) != 3 {
		t.Fatalf("got %v", err)
	}
	result, err := stacks.RenderWithDecryption(t.Context(), req, k.decrypt, stacks.Render)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hunter2-site", "hunter2-more", "hunter2-template"} {
		if !strings.Contains(asJSON(t, result.Components), want) {
			t.Errorf("the result does not have %s", want)
		}
	}
	if len(result.Decrypted) != 3 {
		t.Errorf("decrypted %q", result.Decrypted)
	}
}
