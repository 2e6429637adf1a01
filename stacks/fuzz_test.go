package stacks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/source"
)

// checkErrors checks that an error is nil, or an Error or Errors with a printable message.
func checkErrors(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	found := allErrors(err)
	if len(found) == 0 {
		t.Fatalf("%T is not an Error: %v", err, err)
	}
	for _, e := range found {
		if e.Message == "" || !utf8.ValidString(e.Error()) {
			t.Fatalf("%+v", e)
		}
	}
}

// FuzzLoad loads arbitrary stack files. Load and Resolve succeed or return typed errors.
func FuzzLoad(f *testing.F) {
	seeds, err := filepath.Glob("testdata/render/*/source/stacks/demo/stack.yaml")
	if err != nil || len(seeds) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, seed := range seeds {
		data, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec: {version: 1.0.0, " +
		"components: [{name: a, manifests: [a.yaml], parameters: {schema: {properties: {x: {default: 1}}}, map: " +
		"'{}'}}]}\n"))
	f.Add([]byte("a: &a [*a]\n<<: *a\n? {}\n: x"))
	root := writeSource(f, "", nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(root, FileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		def, err := Load(root, ".", "demo")
		checkErrors(t, err)
		if err == nil {
			_, err = Resolve(t.Context(), def, Identity{Namespace: "a", Name: "b"}, Choices{})
			checkErrors(t, err)
		}
	})
}

const fuzzStack = `  components:
  - name: shop
    helm: {chart: chart}
    schema: {properties: {from: {type: string}, nested: {type: object}}}
    parameters: {schema: {properties: {on: {type: boolean}}}, map: "params.?on.orValue(false) ? {'values': {'from': 'map'}} : {}"}
  - name: web
    manifests: [web.yaml]
`

const fuzzWeb = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
	"spec: {template: {spec: {containers: [{name: web, image: 'web:1'}]}}}\n"

// FuzzOverride renders with arbitrary overrides. Render succeeds or returns typed errors.
func FuzzOverride(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"values":{"from":"x","nested":null}}`, `{"on":true}`,
		`{"images":[{"name":"web","newTag":"2"}],"replicas":[{"name":"web","count":3}]}`,
		`{"patches":[{"target":{"kind":"Deployment"},"patch":"[{\"op\":\"add\",\"path\":\"/spec/x\",\"value\":1}]"}]}`,
		`{"patches":[{"patch":"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {$patch: delete}"}]}`,
		`{"patches":[{"target":{"name":"("},"patch":"- op: x"}]}`, `{"images":[{"name":"*","digest":"x"}]}`,
		`{"values":{"from":1e400}}`,
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	root := writeSource(f, fuzzStack, map[string]string{"web.yaml": fuzzWeb})
	f.Fuzz(func(t *testing.T, text string, chart bool) {
		choice := ComponentChoice{Name: "web"}
		if chart {
			choice.Name = "shop"
		}
		if json.Unmarshal([]byte(text), &choice.Override) != nil {
			t.Skip()
		}
		result, err := Render(t.Context(),
			Request{Root: root, Stack: "demo", Choices: Choices{Components: []ComponentChoice{choice}},
				Capabilities: Capabilities{KubeVersion: "1.30"}})
		checkErrors(t, err)
		for _, c := range result.Components {
			for _, o := range c.Objects {
				if o.Name == "" || o.Kind == "" || !json.Valid(o.Manifest) {
					t.Fatalf("%+v", o)
				}
			}
		}
	})
}

// FuzzValues renders with arbitrary values documents. Render succeeds, or its errors do not contain
// the values.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{"from: x\n", "nested: {a: [1, 2]}\n", "- a\n", "a: &a [*a]\n", "from: {a: b}\n",
		"from: |\n  {{ .Values }}\n", "<<: {from: a}\n", "\xff", "from: !!binary aGk=\n",
		"hunter2-hunter2: 1\nhunter2-hunter2: 2\n"} {
		f.Add([]byte(seed))
	}
	root := writeSource(f, fuzzStack, map[string]string{"web.yaml": fuzzWeb})
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := Render(t.Context(), Request{Root: root, Stack: "demo", Capabilities: Capabilities{
			KubeVersion: "1.30"}, Choices: Choices{
			Values: []ValuesInput{{Component: "shop", Source: "Secret s, key k", Data: data}},
		}})
		checkErrors(t, err)
		if err != nil && strings.Contains(err.Error(), "hunter2-hunter2") &&
			!strings.Contains(err.Error(), "did you mean") && !strings.Contains(err.Error(), "is not in its schema") {
			t.Fatalf("the message contains the values: %v", err)
		}
	})
}

// FuzzParametersFrom reads arbitrary content as a parameter of each type. It is the value of that
// type, or refused with an error that does not contain it.
func FuzzParametersFrom(f *testing.F) {
	for _, seed := range []string{"", "12", "-0", "0x1f", "1e3", "1e999", "true", "yes", "12\n",
		"[a, 1]", "{a: {b: null}}", "&a [*a]", "a: 1\na: 2\n", "\xff", "--- 1\n--- 2\n", "99999999999999999999",
		"hunter2-hunter2: ["} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"string", "boolean", "integer", "number", "array", "object", ""} {
			value, err := readParameter(map[string]any{"type": name}, data)
			if err != nil {
				if strings.Contains(err.Error(), "hunter2") {
					t.Fatal(err)
				}
				continue
			}
			got := ""
			switch v := value.(type) {
			case string:
				if got = "string"; name == "string" && v != string(data) {
					t.Fatalf("%q became %q", data, v)
				}
			case bool:
				got = "boolean"
			case int64:
				if got = "integer"; name == "integer" && strings.TrimPrefix(string(data), "-") !=
					strings.TrimPrefix(strconv.FormatInt(v, 10), "-") {
					t.Fatalf("%q became %d", data, v)
				}
			case float64:
				got = "number"
			case []any:
				got = "array"
			case map[string]any:
				got = "object"
			}
			if got != name && name != "" && (got != "integer" || name != "number") {
				t.Fatalf("%q is %s, not %s", data, got, name)
			}
			if _, err := json.Marshal(value); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzMap evaluates arbitrary expressions. Evaluation ends, or the expression is rejected.
func FuzzMap(f *testing.F) {
	for _, seed := range []string{`{}`, `params`, `params.on ? {'a': 1} : {'b': [2]}`,
		`{'a': [1,2].map(x, [x].map(y, y))}`, `{'a': 'x'.split('')}`, `stack.x`, `{'a': version.matches('(a+)+$')}`,
		`{?'a': params[?'on']}`, `a ? b : c ? {} : []`} {
		f.Add(seed)
	}
	object := func(properties map[string]any) map[string]any { return map[string]any{"properties": properties} }
	compiler, err := expr.NewCompiler(expr.Scope{Stack: object(map[string]any{"x": map[string]any{"type": "string"}}),
		Params: object(map[string]any{"on": map[string]any{"type": "boolean"},
			"n": map[string]any{"type": "integer"}})})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		program, err := compiler.CompileMap(text)
		checkErrors(t, err)
		if err != nil {
			return
		}
		out, err := program.EvalMap(t.Context(),
			expr.Variables{Params: map[string]any{"on": true, "n": int64(1)}, Version: "1.0.0"})
		checkErrors(t, err)
		if _, err := json.Marshal(out); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzManifest parses arbitrary files. The result is objects with names, or typed errors.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		fuzzWeb, "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]\n",
		"---\n---\n", "kind: AList\napiVersion: v1\nitems: &a [*a]\n",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","labels":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := manifest.Parse("m.yaml", data)
		checkErrors(t, err)
		for _, o := range objects {
			manifest.Normalize(o)
			manifest.ClusterKinds{}.SetNamespace(o, "default")
			if o.Name == "" || o.Kind == "" || o.Version == "" {
				t.Fatalf("%+v", o)
			}
			if _, err := manifest.Canonical(o.Value); err != nil {
				t.Fatal(err)
			}
		}
		manifest.Sort(objects)
	})
}

// FuzzKustomization builds arbitrary kustomizations. They build or are rejected with typed errors.
func FuzzKustomization(f *testing.F) {
	for _, seed := range []string{
		"resources: [web.yaml]\n", "resources: [web.yaml]\nimages: [{name: web, newTag: x}]\n",
		"configMapGenerator: [{name: a, files: [web.yaml]}]\n",
		"transformers:\n- |-\n  apiVersion: builtin\n  kind: PrefixTransformer\n  metadata: {name: x}\n  prefix: a-\n",
		"bases: [..]\n", "vars: [{name: A}]\n",
		"replacements: [{source: {kind: Deployment}, targets: [{select: {kind: Deployment}, " +
			"fieldPaths: [spec.x], options: {create: true}}]}]\n", "helmCharts: [{}]\n",
		"helmGlobals: {chartHome: ..}\n" +
			"helmCharts: [{name: k, valuesInline: {a: 1}, additionalValuesFiles: [web.yaml]}]\n",
		"openapi: {path: web.yaml}\nresources: [web.yaml]\npatches: [{path: web.yaml}]\n",
	} {
		f.Add([]byte(seed))
	}
	root := writeSource(f, "", map[string]string{"k/web.yaml": fuzzWeb})
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(root, "k", "kustomization.yaml"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		from, err := source.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		if err := kustomize.Scan(from, "k"); err != nil {
			checkErrors(t, err)
			return
		}
		_, err = kustomize.Build(t.Context(), from, "k", nil, func(kustomize.Release) ([]*manifest.Object, error) {
			return manifest.Parse("chart.yaml", []byte(fuzzWeb))
		})
		checkErrors(t, err)
	})
}
