package stacks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/internal/values"
)

// writeSource writes a source with a chart and the given stack file.
func writeSource(t testing.TB, stack string, more map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: demo}\nspec:\n " +
			" version: 1.0.0\n" + stack,
		"a.yaml":            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"chart/Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.2.3\n",
		"chart/values.yaml": "from: chart\nnested: {from: chart, chart: true}\nlist: [chart]\n",
		"chart/templates/values.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: values}\ndata: {values: {{ " +
			".Values | toJson | quote }}, release: {{ .Release.Name }}}\n",
	}
	for name, content := range more {
		files[name] = content
	}
	for name, content := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func resolveStack(t testing.TB, root string, choices Choices) (*ResolvedStack, error) {
	t.Helper()
	def, err := Load(root, ".", "demo")
	if err != nil {
		t.Fatal(err)
	}
	return Resolve(t.Context(), def, Identity{Namespace: "team", Name: "site"}, choices)
}

// Each source of values overrides the previous ones, but only keys that it sets.
func TestValuesPrecedence(t *testing.T) {
	root := writeSource(t, `  parameters: {schema: {properties: {zone: {default: eu}}}}
  components:
  - name: shop
    helm: {chart: chart, values: {from: stack, nested: {from: stack, stack: 1}}, valuesFiles: [one.yaml, two.yaml]}
    parameters:
      schema: {properties: {map: {type: boolean, default: true}}}
      map: "params.map ? {'values': {'from': 'map', 'nested': {'from': 'map', 'map': stack.zone + version}}} : {}"
`, map[string]string{
		"one.yaml": "from: one\nnested: {from: one, one: 1}\nlist: [one]\n",
		"two.yaml": "from: two\nnested: {from: two, two: 1}\n",
	})
	input := ValuesInput{Component: "shop", Source: "ConfigMap site, key values.yaml",
		Data: []byte("from: first\nnested: {from: first, first: 1}\n")}
	second := ValuesInput{Component: "shop", Source: "Secret site, key values.yaml",
		Data: []byte("from: second\nnested: {from: second, second: 1}\n")}
	override := func(m map[string]any) []ComponentChoice { return []ComponentChoice{{Name: "shop", Override: m}} }
	off := map[string]any{"map": false}
	for _, tt := range []struct {
		name, from, nested string
		choices            Choices
	}{
		{"stack", "stack", `{"chart":true,"from":"stack","one":1,"stack":1,"two":1}`,
			Choices{Components: override(off)}},
		{"first", "first", `{"chart":true,"first":1,"from":"first","one":1,"stack":1,"two":1}`,
			Choices{Components: override(off), Values: []ValuesInput{input}}},
		{"second", "second", `{"chart":true,"first":1,"from":"second","one":1,"second":1,"stack":1,"two":1}`,
			Choices{Components: override(off), Values: []ValuesInput{input, second}}},
		{"map", "map", `{"chart":true,"first":1,"from":"map","map":"us1.2.3","one":1,"stack":1,"two":1}`,
			Choices{Parameters: map[string]any{"zone": "us"}, Values: []ValuesInput{input}}},
		{"override", "override",
			`{"chart":true,"first":1,"from":"override","map":"eu1.2.3","one":1,"own":1,"stack":1,"two":null}`, Choices{
				Values: []ValuesInput{input},
				Components: override(map[string]any{"values": map[string]any{"from": "override",
					"nested": map[string]any{"from": "override", "own": 1, "two": nil}}}),
			}},
	} {
		result, err := Render(t.Context(),
			Request{Root: root, Stack: "demo", Choices: tt.choices, Capabilities: Capabilities{KubeVersion: "1.30"}})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var object struct{ Data map[string]string }
		if err := json.Unmarshal(result.Components[0].Objects[0].Manifest, &object); err != nil {
			t.Fatal(err)
		}
		var got struct {
			From   string
			List   []string
			Nested json.RawMessage
		}
		if err := json.Unmarshal([]byte(object.Data["values"]), &got); err != nil {
			t.Fatal(err)
		}
		if got.From != tt.from || string(got.Nested) != tt.nested || got.List[0] != "one" {
			t.Errorf("%s: got %s", tt.name, object.Data["values"])
		}
	}
}

func TestOrderIsTopologicalAndStable(t *testing.T) {
	root := writeSource(t, `  components:
  - {name: z, manifests: [a.yaml]}
  - {name: y, dependsOn: [w], manifests: [a.yaml]}
  - {name: x, manifests: [a.yaml]}
  - {name: w, dependsOn: [x], manifests: [a.yaml]}
  - {name: v, dependsOn: [z, y], manifests: [a.yaml]}
`, nil)
	p, err := resolveStack(t, root, Choices{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range p.Components {
		got = append(got, c.Component.Name+strconv.Itoa(c.Wave))
	}
	if want := []string{"z0", "x0", "w1", "y2", "v3"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	no := false
	p, err = resolveStack(t, root,
		Choices{Components: []ComponentChoice{{Name: "v", Enabled: &no}, {Name: "y", Enabled: &no}}})
	if err != nil || len(p.Components) != 3 {
		t.Errorf("without v and y: %v %v", p, err)
	}
}

func TestNamespacePrecedence(t *testing.T) {
	root := writeSource(t,
		"  components:\n  - {name: own, namespace: own, manifests: [a.yaml]}\n  - {name: other, manifests: [a.yaml]}\n",
		nil)
	for target, want := range map[string]string{"": "team", "target": "target"} {
		p, err := resolveStack(t, root, Choices{TargetNamespace: target})
		if err != nil || p.Components[0].Namespace != "own" || p.Components[1].Namespace != want {
			t.Errorf("target %q: %v %v", target, p, err)
		}
	}
}

func TestResolveRejectsInvalidChoices(t *testing.T) {
	stack := `  parameters: {schema: {required: [zone], properties: {zone: {type: string}, n: {type: integer, maximum: 3}}}}
  components:
  - name: shop
    helm: {chart: chart}
    schema: {properties: {from: {type: string}, nested: {properties: {from: {enum: [a, b]}}}, free: {type: object}}}
  - name: plain
    manifests: [a.yaml]
  - name: mapped
    manifests: [a.yaml]
    parameters: {schema: {properties: {kind: {type: string}, gone: {type: string}}}, map: "params.kind == 'loop' ? {'patches': [1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10].map(c, [1,2,3,4,5,6,7,8,9,10].map(d, [1,2,3,4,5,6,7,8,9,10].map(e, [1,2,3,4,5,6,7,8,9,10].map(f, f))))))} : params.kind == 'typo' ? {'imagse': []} : params.kind == 'values' ? {'values': {}} : {'replicas': [{'name': params.gone, 'count': 1}]}"}
`
	root := writeSource(t, stack, nil)
	zone := map[string]any{"zone": "eu"}
	choice := func(name string, override map[string]any) Choices {
		return Choices{Parameters: zone, Components: []ComponentChoice{
			{Name: name, Override: override}, {Name: "mapped", Override: map[string]any{"kind": "none"}},
		}[:2]}
	}
	mapped := func(kind string) Choices {
		return Choices{Parameters: zone,
			Components: []ComponentChoice{{Name: "mapped", Override: map[string]any{"kind": kind}}}}
	}
	for name, tt := range map[string]struct {
		choices Choices
		want    string
	}{
		"parameter missing": {Choices{}, `stack "demo": parameter "zone" is required`},
		"parameter too large": {Choices{Parameters: map[string]any{"zone": "eu", "n": int64(4)}},
			`stack "demo": parameter "n" must be at most 3`},
		"schema at depth": {choice("shop",
			map[string]any{"values": map[string]any{"nested": map[string]any{"form": "x"}}}),
			`component "shop": override key "values.nested.form" is not in its schema; did you mean "from"?`},
		"schema enum": {choice("shop",
			map[string]any{"values": map[string]any{"nested": map[string]any{"from": "c"}}}),
			`override key "values.nested.from" must be one of a, b`},
		"values of no chart": {choice("plain", map[string]any{"values": map[string]any{}}),
			`component "plain": override key "values" is for Helm charts, but this component is not a Helm chart`},
		"no parameters": {choice("plain", map[string]any{"image": "x"}),
			`component "plain": override key "image" is not known: the component declares no parameters; did you mean "images"?`},
		"wrong type": {choice("plain", map[string]any{"images": "x"}),
			`override: field "images" must be a list, not a string`},
		"negative replicas": {choice("plain",
			map[string]any{"replicas": []any{map[string]any{"name": "a", "count": int64(-1)}}}),
			`needs name and a non-negative count`},
		"map costs too much": {mapped("loop"), `parameters.map failed: `},
		"map with a typo":    {mapped("typo"), `parameters.map: field "imagse" is not known; did you mean "images"?`},
		"map with values":    {mapped("values"), `override key "values" is for Helm charts`},
		"map fails":          {mapped("x"), `parameters.map failed: no such key: gone`},
		"values for plain": {Choices{Parameters: zone,
			Values: []ValuesInput{{Component: "plain", Source: "ConfigMap x, key y", Data: []byte("a: 1")}}},
			`component "plain": ConfigMap x, key y has Helm values`},
		"unknown component": {Choices{Parameters: zone,
			Values: []ValuesInput{{Component: "shpo", Source: "ConfigMap x, key y"}}},
			`ConfigMap x, key y is for component "shpo", which is not in the stack; did you mean "shop"?`},
		"values not YAML": {Choices{Parameters: zone,
			Values: []ValuesInput{{Component: "shop", Source: "Secret x, key y", Data: []byte("a: 1\nhunter2: [")}}},
			`Secret x, key y: line 2: not a YAML mapping with unique keys`},
		"values twice": {Choices{Parameters: zone,
			Values: []ValuesInput{{Component: "shop", Source: "Secret x, key y",
				Data: []byte("hunter2: 1\nhunter2: 1")}}},
			`Secret x, key y: line 2: not a YAML mapping with unique keys`},
		"values by schema": {Choices{Parameters: zone,
			Values: []ValuesInput{{Component: "shop", Source: "Secret x, key y",
				Data: []byte("from: [hunter2]\nfre: {}")}}},
			`Secret x, key y: value "fre" is not in its schema; did you mean "free"?`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resolveStack(t, root, tt.choices)
			if err == nil {
				t.Fatal("Resolve succeeded")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got:\n%v\nwant:\n%s", err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the message contains a value: %v", err)
			}
		})
	}
}

// schemaForTypos has properties at several depths: nested, in lists and behind references.
const schemaForTypos = `{
  "properties": {
    "retention": {"type": "string"},
    "storage": {"type": "object", "properties": {"className": {"type": "string"}, "size": {"type": "object", "properties": {"requests": {"type": "string"}}}}},
    "hosts": {"type": "array", "items": {"type": "object", "properties": {"hostname": {"type": "string"}, "tlsSecret": {"type": "string"}}}},
    "extra": {"$ref": "#/$defs/extra"}
  },
  "$defs": {"extra": {"type": "object", "properties": {"priority": {"type": "string"}}}}
}`

// TestMisspelledKeysGetSuggestions generates an override for each property of a schema, with that
// property misspelled, as a value and as a parameter. It expects the path and the right spelling in
// the error.
func TestMisspelledKeysGetSuggestions(t *testing.T) {
	root := writeSource(t, "  components:\n  - name: shop\n    helm: {chart: chart}\n    schema: "+schemaForTypos+
		"\n    parameters: {schema: "+schemaForTypos+"}\n", nil)
	var doc map[string]any
	if err := json.Unmarshal([]byte(schemaForTypos), &doc); err != nil {
		t.Fatal(err)
	}
	tested := 0
	var walk func(s map[string]any, wrap func(map[string]any) map[string]any, path string)
	walk = func(s map[string]any, wrap func(map[string]any) map[string]any, path string) {
		if ref, ok := s["$ref"].(string); ok {
			s = asObject(asObject(doc["$defs"])[strings.TrimPrefix(ref, "#/$defs/")])
		}
		if items, ok := s["items"].(map[string]any); ok {
			walk(items, wrap, path+"[0]")
			return
		}
		for _, name := range values.Properties(s) {
			wrong := misspell(name)
			full := strings.TrimPrefix(path+"."+wrong, ".")
			expectKeyTypo(t, root, wrap(map[string]any{wrong: "x"}), full, name)
			tested++
			sub := asObject(asObject(s["properties"])[name])
			walk(sub, func(m map[string]any) map[string]any {
				if sub["type"] == "array" {
					return wrap(map[string]any{name: []any{m}})
				}
				return wrap(map[string]any{name: m})
			}, strings.TrimPrefix(path+"."+name, "."))
		}
	}
	walk(doc, func(m map[string]any) map[string]any { return m }, "")
	if tested < 9 {
		t.Errorf("only %d keys were tested", tested)
	}
}

func expectKeyTypo(t *testing.T, root string, m map[string]any, path, right string) {
	t.Helper()
	for prefix, override := range map[string]map[string]any{"values.": {"values": m}, "": m} {
		_, err := resolveStack(t, root, Choices{Components: []ComponentChoice{{Name: "shop", Override: override}}})
		want := fmt.Sprintf("stack \"demo\": component \"shop\": override key %q is not in its schema; did you "+
			"mean %q?", prefix+path, right)
		if err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	_, err := resolveStack(t, root,
		Choices{Values: []ValuesInput{{Component: "shop", Source: "Secret site, key x", Data: mustJSON(t, m)}}})
	want := fmt.Sprintf("stack \"demo\": component \"shop\": Secret site, key x: value %q is not in its schema; did "+
		"you mean %q?", path, right)
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A misspelled reserved key, or a misspelled key below it, gets a suggestion of the right one.
func TestMisspelledReservedKeysGetSuggestions(t *testing.T) {
	root := writeSource(t, "  components:\n  - {name: web, manifests: [a.yaml]}\n", nil)
	for _, key := range ReservedKeys {
		_, err := resolveStack(t, root,
			Choices{Components: []ComponentChoice{{Name: "web",
				Override: map[string]any{misspell(key): map[string]any{}}}}})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("did you mean %q?", key)) {
			t.Errorf("%s: %v", key, err)
		}
	}
	for key, names := range map[string][]string{
		"images": {"name", "newName", "newTag", "digest"}, "replicas": {"name", "count"},
		"patches": {"target", "patch"},
	} {
		for _, name := range names {
			item := []any{map[string]any{misspell(name): "x"}}
			_, err := resolveStack(t, root,
				Choices{Components: []ComponentChoice{{Name: "web", Override: map[string]any{key: item}}}})
			want := fmt.Sprintf("override: field %q is not known; did you mean %q?", key+"[0]."+misspell(name), name)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v\nwant %s", err, want)
			}
		}
	}
}
