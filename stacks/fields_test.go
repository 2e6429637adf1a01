package stacks_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/internal/testrun/layout"
	"github.com/ksctl/gitops/stacks"
)

// fieldsStack is a stack of one component in each of the three forms, with the same Deployment and
// ConfigMap.
func fieldsStack(form, fields string) map[string]string {
	const objects = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {app: web}}\nspec:\n  " +
		"replicas: 1\n" +
		"  template: {spec: {containers: [{name: app, image: old}, {name: app-metrics, image: metrics}]}}\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {greeting: Hello, list: \"[]\"}\n"
	return map[string]string{
		"stack.yaml": stackHeader +
			"  parameters:\n    schema:\n      properties:\n        greeting: {type: string, default: Hi}\n" +
			"        replicas: {type: integer, default: 3}\n        tls: {type: boolean, default: false}\n" +
			"        ratio: {type: number, default: 1}\n        any: {type: array}\n" +
			"        hosts: {type: array, items: {type: string}, default: [a, b]}\n" +
			"  components:\n  - name: web\n    " + form + "\n    fields:\n" + fields,
		"manifests/web.yaml": objects, "k/web.yaml": objects, "k/kustomization.yaml": "resources: [web.yaml]\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 2.0.0\n", "chart/templates/web.yaml": objects,
	}
}

var componentSources = map[string]string{"manifests": "manifests: [manifests/]", "kustomize": "kustomize: {path: k}",
	"helm": "helm: {chart: chart}"}

// renderFields renders the stack, and returns its ConfigMap and its Deployment.
func renderFields(t testing.TB, form, fields string,
	parameters map[string]any) (config, deployment map[string]any, err error) {
	t.Helper()
	req := stacks.Request{Root: writeTree(t, fieldsStack(componentSources[form], fields)), Stack: "demo",
		Install:      stacks.Identity{Namespace: "team", Name: "site"},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}, Choices: stacks.Choices{Parameters: parameters}}
	result, err := stacks.Render(t.Context(), req)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range result.Components[0].Objects {
		var object map[string]any
		if err := json.Unmarshal(o.Manifest, &object); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "ConfigMap" {
			config = object
		} else {
			deployment = object
		}
	}
	return config, deployment, nil
}

func TestFields(t *testing.T) {
	const fields = `    - {target: {kind: ConfigMap, name: web}, path: data.greeting, value: stack.greeting}
    - {target: {kind: Deployment}, path: spec.replicas, value: stack.replicas}
    - {target: {labelSelector: app=web}, path: "spec.template.spec.containers.[name=app].image", value: "'example.com/app:' + version"}
    - {target: {kind: ConfigMap}, path: data.install, value: "namespace + '/' + name", create: true}
    - {target: {kind: Deployment}, path: spec.template.spec.volumes, value: "stack.hosts.map(h, {'name': h})", when: stack.tls, create: true}
    - {target: {kind: Ingress}, path: spec.tls, value: "1", when: "false"}
`
	for form := range componentSources {
		config, deployment, err := renderFields(t, form, fields,
			map[string]any{"tls": true, "greeting": "a \"b\"\n{{ c }}"})
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		version := map[bool]string{true: "2.0.0", false: "1.0.0"}[form == "helm"]
		want := map[string]any{"greeting": "a \"b\"\n{{ c }}", "list": "[]", "install": "team/site"}
		if !reflect.DeepEqual(config["data"], want) {
			t.Errorf("%s: got %v", form, config["data"])
		}
		got := asJSON(t, deployment["spec"])
		if want := `{"replicas":3,"template":{"spec":{"containers":[{"image":"example.com/app:` + version +
			`","name":"app"},{"image":"metrics","name":"app-metrics"}],"volumes":[{"name":"a"},{"name":"b"}]}}}`; got !=
			want {
			t.Errorf("%s: got %s\nwant %s", form, got, want)
		}
	}
}

func TestInvalidFields(t *testing.T) {
	for fields, want := range map[string]string{
		`    - {target: {kind: Ingress}, path: spec.tls, value: "1"}`:                           `stack.yaml:19: component "web": field "fields[0].path" matches no rendered object: its target is kind Ingress`,
		`    - {target: {}, path: spec.tls, value: "1"}`:                                        `field "fields[0].target" selects nothing`,
		`    - {target: {kind: "("}, path: spec.tls, value: "1"}`:                               `field "fields[0].target"`,
		`    - {target: {labelSelector: "a=("}, path: spec.tls, value: "1"}`:                    `field "fields[0].target"`,
		`    - {target: {kind: ConfigMap}, path: data.gone, value: "1"}`:                        `field "fields[0].path" in ConfigMap "team/web": data.gone is missing: create: true adds it`,
		`    - {target: {kind: ConfigMap}, path: data.greeting.a, value: "1", create: true}`:    `data.greeting is no object and no list`,
		`    - {target: {kind: ConfigMap}, path: metadata.name, value: "'x'"}`:                  `field "fields[0].path" is metadata.name`,
		`    - {target: {kind: ConfigMap}, path: data.greeting, value: stack.greetin}`:          `stack.yaml:19: component "web": field "fields[0].value" does not compile: undefined field 'greetin' (at 1:6 of the expression)`,
		`    - {target: {kind: ConfigMap}, path: data.greeting, value: "1", when: stack.hosts}`: `field "fields[0].when" must return true or false, not list(string)`,
		`    - {target: {kind: ConfigMap}, path: data.greeting, value: "stack.hosts[9]"}`:       `field "fields[0].value" failed: index out of bounds`,
		`    - {target: {kind: ConfigMap}, path: data.greeting, value: ""}`:                     `field "fields[0].value"`,
		`    - {target: {kind: ConfigMap}, path: data.greeting, valeu: "1"}`:                    `did you mean "value"?`,
	} {
		_, _, err := renderFields(t, "manifests", fields+"\n", nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v\nwant %s", fields, err, want)
		}
	}
}

// A field cannot give an object labels or annotations that the API server refuses.
func TestFieldsOfMetadata(t *testing.T) {
	for field, want := range map[string]string{
		`path: metadata.labels, value: "5"`:                    `metadata.labels must be an object whose values are strings`,
		`path: metadata.labels.a, value: "5"`:                  `metadata.labels: the value of "a" must be a string: use string(…)`,
		`path: metadata.labels.a, value: "'no label!'"`:        `metadata.labels: Invalid value: "no label!"`,
		`path: "metadata.labels.[a b]", value: "'x'"`:          `metadata.labels: Invalid value: "a b"`,
		`path: metadata.annotations, value: "{'a': [1]}"`:      `metadata.annotations: the value of "a" must be a string`,
		`path: "metadata.annotations.[/]", value: "'x'"`:       `metadata.annotations: Invalid value: "/"`,
		`path: metadata.labels.a, value: stack.greeting`:       "",
		`path: metadata.labels.a, value: string(5)`:            "",
		`path: metadata.labels, value: "{'a': 'b'}"`:           "",
		`path: "metadata.annotations.[a/b]", value: "'{ 5 }'"`: "",
	} {
		_, _, err := renderFields(t, "manifests", "    - {target: {kind: ConfigMap}, create: true, "+field+"}\n", nil)
		want := `stack.yaml:19: component "web": field "fields[0].path" in ConfigMap "team/web": ` + want
		if ok := strings.HasSuffix(want, ": "); ok != (err == nil) || !ok && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v\nwant %s", field, err, want)
		}
	}
}

// Patches come after fields, images and replicas after patches.
func TestOrderOfChanges(t *testing.T) {
	root := writeTree(t, fieldsStack(componentSources["manifests"],
		`    - {target: {kind: Deployment}, path: "spec.template.spec.containers.[name=app].image", value: "'field'"}
    - {target: {kind: Deployment}, path: spec.replicas, value: "5"}
    patches:
    - {target: {kind: Deployment}, patch: {spec: {replicas: 6, template: {spec: {containers: [{name: app, image: patch}]}}}}}
`))
	req := stacks.Request{Root: root, Stack: "demo",
		Choices: stacks.Choices{Components: []stacks.ComponentChoice{{Name: "web",
			Override: map[string]any{"images": []any{map[string]any{"name": "patch", "newName": "image"}},
				"replicas": []any{map[string]any{"name": "web", "count": int64(7)}}}}}}}
	for _, o := range mustRender(t, req).Components[0].Objects {
		if m := string(o.Manifest); o.Kind == "Deployment" && (!strings.Contains(m, `"image":"image"`) ||
			!strings.Contains(m, `"replicas":7`)) {
			t.Errorf("got %s", m)
		}
	}
}

// hostileValue returns a value with what breaks out of quotes, of YAML and of templates: a text, a
// number, a list or an object.
func hostileValue(random *rand.Rand, depth int) any {
	switch random.IntN(12) {
	case 0:
		return random.Int64() - random.Int64()
	case 1:
		return random.NormFloat64() * math.Pow10(random.IntN(600)-300)
	case 2, 3:
		if depth == 12 {
			return nil
		}
		list := []any{hostileValue(random, depth+1)}
		if random.IntN(2) == 0 {
			return map[string]any{hostileText(random): list}
		}
		return list
	}
	return hostileText(random)
}

func hostileText(random *rand.Rand) string {
	pieces := []string{"\"", "'", "\\", "\n", "\r", "\t", "\x00", "\u2028", "{", "}", "[", "]", ": ", "- ", "#", "&a",
		"*a", "!!int ", "${x}", "$${x}", "{{ .Values }}", "{{", "%", "---\n", "1e400", "0x1F", "~", "null", "true",
		"yes", "999999999999999999999", "a", "é", "\U0001F600"}
	var b strings.Builder
	for range random.IntN(12) {
		b.WriteString(pieces[random.IntN(len(pieces))])
	}
	return b.String()
}

// A hostile value changes the one field that it is set in.
func TestHostileValuesChangeOneField(t *testing.T) {
	const each = 100
	values := 10_000
	if os.Getenv(layout.LongVariable) != "" {
		values = 1_000_000
	}
	var fields strings.Builder
	for i := range each {
		fmt.Fprintf(&fields,
			"    - {target: {kind: ConfigMap}, path: data.key%d, value: \"stack.any[%d]\", create: true}\n", i, i)
	}
	for form := range componentSources {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, uint64(form[0])))
			for range values / each / len(componentSources) {
				hostile, want := make([]any, each), map[string]any{"greeting": "Hello", "list": "[]"}
				for i := range hostile {
					hostile[i] = hostileValue(random, 0)
					want[fmt.Sprint("key", i)] = hostile[i]
				}
				config, deployment, err := renderFields(t, form, fields.String(), map[string]any{"any": hostile})
				if err != nil {
					t.Fatal(err)
				}
				if got := asJSON(t, config["data"]); got != asJSON(t, want) || len(config) != 4 {
					t.Fatalf("got %s\nwant %s", got, asJSON(t, want))
				}
				if asJSON(t, deployment["spec"]) !=
					`{"replicas":1,"template":{"spec":{"containers":[{"image":"old","name":"app"},`+
						`{"image":"metrics","name":"app-metrics"}]}}}` {
					t.Fatalf("got %v", deployment)
				}
			}
		})
	}
}
