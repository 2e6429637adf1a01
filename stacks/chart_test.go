package stacks_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// tgz packs files into an archive, like helm package.
func tgz(t testing.TB, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for name, content := range files {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const valuesTemplate = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Chart.Name }}}\ndata: {values: {{ " +
	".Values | toJson | quote }}}\n"

// renderChart renders a stack with one chart.
func renderChart(t testing.TB, files map[string]string, override map[string]any) (stacks.Result, error) {
	t.Helper()
	if files["stack.yaml"] == "" {
		files["stack.yaml"] = components("- {name: shop, helm: {chart: chart}}")
	}
	req := stacks.Request{Root: writeTree(t, files), Stack: "demo",
		Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"}}
	if override != nil {
		req.Choices.Components = []stacks.ComponentChoice{{Name: "shop", Override: map[string]any{"values": override}}}
	}
	return stacks.Render(t.Context(), req)
}

func objectNames(result stacks.Result) []string {
	var out []string
	for _, c := range result.Components {
		for _, o := range c.Objects {
			out = append(out, o.Name)
		}
	}
	return out
}

func TestChartsRenderFromArchivesAndFolders(t *testing.T) {
	inner := tgz(t, map[string]string{"inner/Chart.yaml": "apiVersion: v2\nname: inner\nversion: 1.0.0\n",
		"inner/templates/x.yaml": valuesTemplate})
	sub := tgz(t, map[string]string{
		"sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n" +
			"dependencies: [{name: inner, version: '*', repository: ''}]\n", "sub/templates/x.yaml": valuesTemplate,
		"sub/charts/inner-1.0.0.tgz": inner,
	})
	shop := map[string]string{
		"shop/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [{name: sub, " +
			"version: 1.x, repository: ''}]\n",
		"shop/templates/x.yaml":     valuesTemplate,
		"shop/charts/sub-1.0.0.tgz": sub,
	}
	want := []string{"inner", "shop", "sub"}
	archive, err := renderChart(t,
		map[string]string{"chart.tgz": tgz(t, shop),
			"stack.yaml": components("- {name: shop, helm: {chart: chart.tgz}}")}, nil)
	if err != nil || !slices.Equal(objectNames(archive), want) {
		t.Errorf("archive: %v %v", objectNames(archive), err)
	}
	files := map[string]string{}
	for name, content := range shop {
		files["chart"+strings.TrimPrefix(name, "shop")] = content
	}
	folder, err := renderChart(t, files, nil)
	if err != nil || !slices.Equal(objectNames(folder), want) {
		t.Errorf("folder: %v %v", objectNames(folder), err)
	}
	if file := folder.Components[0].Objects[0].File; file != "chart/charts/sub/charts/inner/templates/x.yaml" {
		t.Errorf("the file of the inner template is %s", file)
	}
}

func TestChartArchivesAreBounded(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("\x00", 40<<20)
	bomb := tgz(t, map[string]string{"sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n", "sub/x": zeros})
	_, err := renderChart(t, map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/charts/a.tgz": bomb, "chart/charts/b.tgz": bomb}, nil)
	if err == nil ||
		!strings.Contains(err.Error(),
			`chart/charts/b.tgz: component "shop": this is not a chart archive: unpacked, the chart has more than 67108864 bytes`) {
		t.Errorf("two of 40 MiB: %v", err)
	}
	_, err = renderChart(t, map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/charts/a.tgz": "no archive"}, nil)
	if err == nil || !strings.Contains(err.Error(), "chart/charts/a.tgz") {
		t.Errorf("no archive: %v", err)
	}
	_, err = renderChart(t, map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/charts/a.tgz": tgz(t, map[string]string{"a/../../Chart.yaml": "x"})}, nil)
	if err == nil || !strings.Contains(err.Error(), "chart/charts/a.tgz") {
		t.Errorf("a path that leaves the archive: %v", err)
	}
}

func TestValuesAreValidatedAgainstChartSchemas(t *testing.T) {
	files := func() map[string]string {
		return map[string]string{
			"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n" +
				"dependencies: [{name: cache, version: '*', repository: '', condition: cache.enabled}]\n",
			"chart/values.yaml":                     "replicas: 1\ncache: {enabled: true, size: 1}\n",
			"chart/values.schema.json":              `{"type":"object","properties":{"replicas":{"type":"integer"},"pod":{"$ref":"https://x.example.com/pod.json"},"known":{}}}`,
			"chart/templates/x.yaml":                valuesTemplate,
			"chart/charts/cache/Chart.yaml":         "apiVersion: v2\nname: cache\nversion: 1.0.0\n",
			"chart/charts/cache/values.yaml":        "size: 5\n",
			"chart/charts/cache/values.schema.json": `{"type":"object","properties":{"size":{"type":"integer","maximum":9},"enabled":{},"global":{}},"additionalProperties":false}`,
			"chart/charts/cache/templates/x.yaml":   valuesTemplate,
		}
	}
	result, err := renderChart(t, files(), map[string]any{"known": true, "pod": 5})
	if err != nil || len(result.Warnings) != 1 ||
		!strings.Contains(result.Warnings[0],
			"chart/values.schema.json refers to https://x.example.com/pod.json, which is not fetched") {
		t.Errorf("%v %v", result.Warnings, err)
	}
	for want, override := range map[string]map[string]any{
		`component "shop": override key "values.replicas" must be integer, not string`: {
			"replicas": "two"},
		`component "shop": override key "values.cache.size" must be at most 9`: {
			"cache": map[string]any{"size": 10}},
		`component "shop": override key "values.cache.sise" is not in its schema; did you mean "size"?`: {
			"cache": map[string]any{"sise": 1}},
		`values: "cache" must be a mapping`: {
			"cache": "hunter2"},
		`values: "cache.global" must be a mapping`: {
			"cache": map[string]any{"global": "hunter2"}},
	} {
		_, err := renderChart(t, files(), override)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	off, err := renderChart(t, files(), map[string]any{"cache": map[string]any{"enabled": false, "size": 100}})
	if err != nil || !slices.Equal(objectNames(off), []string{"shop"}) {
		t.Errorf("a disabled subchart: %v %v", objectNames(off), err)
	}
	broken := files()
	broken["chart/values.schema.json"] = `{"type":"objct"}`
	if _, err := renderChart(t, broken, nil); err == nil ||
		!strings.Contains(err.Error(),
			`chart/values.schema.json: component "shop": the schema is not a valid JSON schema`) {
		t.Errorf("a broken schema: %v", err)
	}
}

func TestChartKubeVersionAndDeprecationAreChecked(t *testing.T) {
	base := func(chart string) map[string]string {
		return map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n" + chart,
			"chart/templates/x.yaml": valuesTemplate}
	}
	if _, err := renderChart(t, base("kubeVersion: '>=1.31'\n"), nil); err == nil ||
		!strings.Contains(err.Error(),
			`chart/Chart.yaml: component "shop": the chart requires Kubernetes >=1.31, but the target has v1.30.0`) {
		t.Error(err)
	}
	result, err := renderChart(t, base("deprecated: true\n"), nil)
	if err != nil || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "deprecated") {
		t.Errorf("%v %v", result.Warnings, err)
	}
	req := stacks.Request{Root: writeTree(t,
		map[string]string{"stack.yaml": components("- {name: shop, helm: {chart: chart}}"),
			"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n"}), Stack: "demo"}
	if _, err := stacks.Render(t.Context(), req); err == nil ||
		!strings.Contains(err.Error(), `the target's Kubernetes version "" is not a version`) {
		t.Error(err)
	}
}

// The error of a failed template has the template's own file and line, however deeply it is
// included.
func TestTemplateErrorsHaveFileAndLine(t *testing.T) {
	for template, want := range map[string]string{
		"a: 1\n\nb: {{ .Values.a.b.c }}\n":     `chart/templates/x.yaml:3: component "shop": the template failed: `,
		"a: 1\nb: {{ nope }}\n":                `chart/templates/x.yaml:2: component "shop": the template failed: function "nope" not defined`,
		"a: {{ include \"deep\" . }}\n":        `chart/templates/_h.tpl:3: component "shop": the template failed: `,
		"{{ fail \"choose one\" }}\n":          `chart/templates/x.yaml:1: component "shop": the template failed: choose one`,
		"a: 1\nb: {{ now | date \"2006\" }}\n": `chart/templates/x.yaml:2: component "shop": the template uses now, which is not allowed: the function depends on the clock`,
		"a: {{ htpasswd \"a\" \"b\" }}\n":      `chart/templates/x.yaml:1: component "shop": the template uses htpasswd, which is not allowed`,
		"\n--- # one\na: 1\n":                  `chart/templates/x.yaml: component "shop": the object has no apiVersion (line 3 of the rendered template)`,
		"a: {{ include \"gone\" . }}\n":        `no template "gone" associated with template`,
		"{{ define \"me\" }}{{ include \"me\" . }}{{ end }}{{ include \"me\" . }}\n": `chart/templates/x.yaml`,
	} {
		_, err := renderChart(t, map[string]string{
			"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n", "chart/values.yaml": "a: {b: x}\n",
			"chart/templates/_h.tpl": "{{ define \"deep\" }}\n\n{{ .Values.a.b.c }}\n{{ end }}\n",
			"chart/templates/x.yaml": template,
		}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v\nwant %s", template, err, want)
		}
	}
}

func TestHookAnnotationsSetPhasesAndWarnings(t *testing.T) {
	result, err := renderChart(t, map[string]string{
		"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/templates/x.yaml": `{{- range $name, $hook := dict "both" "pre-install,post-install" "crd" "crd-install" "odd" "pre-instal" "rollback" "post-rollback,pre-upgrade" "weight" "post-upgrade" "tests" "test,post-delete" "account" "pre-delete" }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $name }}, annotations: {helm.sh/hook: "{{ $hook }}", helm.sh/hook-weight: "{{ if eq $name "weight" }}heavy{{ else }}1{{ end }}"}}
---
{{- end }}
`,
		"chart/templates/job.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: job, annotations: " +
			"{helm.sh/hook: \"pre-install,post-install\"}}\n",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range result.Components[0].Objects {
		got[o.Name] = "no hook"
		if o.Hook != nil {
			got[o.Name] = string(o.Hook.Phase)
		}
	}
	for name, want := range map[string]string{"both": "Pre", "crd": "no hook", "rollback": "Inactive",
		"weight": "Inactive",
		"odd":    "", "tests": "", "account": ""} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	warnings := strings.Join(result.Warnings, "\n")
	for _, want := range []string{`Job.batch "job" is both a pre hook and a post hook`,
		`ConfigMap "odd" is skipped: the hook pre-instal is not supported`,
		`hook weight "heavy", which is not a number`,
		`component "shop": the hooks of its removal do not run: they are kept with generated values`} {
		if !strings.Contains(warnings, want) {
			t.Errorf("got %s\nwant %s", warnings, want)
		}
	}
}

// A hook and an object have one name. If the object runs, both are needed, and one would replace
// the other.
func TestHookAndObjectOfOneName(t *testing.T) {
	object := func(kind, version, annotations string) string {
		return "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: a, annotations: {" + annotations +
			"}}\n"
	}
	const pre, post = "helm.sh/hook: pre-install, helm.sh/hook-weight: '-3'", "helm.sh/hook: post-install"
	for name, tc := range map[string]struct{ hook, object, want string }{
		"before the object": {object("ServiceAccount", "v1", pre), object("ServiceAccount", "v1", "its: own"), ""},
		"after the object": {object("ServiceAccount", "v1", post), object("ServiceAccount", "v1", ""),
			"is rendered twice"},
		"an object that runs": {object("Job", "batch/v1", pre), object("Job", "batch/v1", ""), "is rendered twice"},
	} {
		for _, files := range [][]string{{"a", "b"}, {"b", "a"}} {
			result, err := renderChart(t, map[string]string{
				"chart/Chart.yaml":                      "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
				"chart/templates/" + files[0] + ".yaml": tc.hook, "chart/templates/" + files[1] + ".yaml": tc.object,
			}, nil)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want %s", name, err, tc.want)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			objects := result.Components[0].Objects
			if len(objects) != 1 || !strings.Contains(string(objects[0].Manifest), `"its":"own"`) ||
				!reflect.DeepEqual(objects[0].Hook, &stacks.Hook{Phase: stacks.HookPre, Weight: -3, Stays: true}) {
				t.Errorf("%s: got %+v", name, objects)
			}
		}
	}
}

// The notes of a chart are those of its own NOTES.txt, without values that are not public.
func TestNotesOfChart(t *testing.T) {
	files := map[string]string{
		"stack.yaml":                           components("- {name: shop, helm: {chart: chart}}"),
		"chart/Chart.yaml":                     "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/values.yaml":                    "host: shop.example.com\n",
		"chart/templates/a.yaml":               "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"chart/templates/NOTES.txt":            "Open {{ .Values.host }}, and log in with {{ .Values.password }}.\n",
		"chart/charts/sub/Chart.yaml":          "apiVersion: v2\nname: sub\nversion: 1.0.0\n",
		"chart/charts/sub/templates/NOTES.txt": "of the subchart\n",
	}
	result, err := stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo",
		Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"},
		Choices: stacks.Choices{Values: []stacks.ValuesInput{{Component: "shop", Data: []byte("password: hunter2\n"),
			Source: "Secret"}}}})
	if err != nil {
		t.Fatal(err)
	}
	notes := result.Components[0].Notes
	if !strings.HasPrefix(notes, "Open shop.example.com, and log in with ") || strings.Contains(notes, "hunter2") {
		t.Errorf("got %q", notes)
	}
}
