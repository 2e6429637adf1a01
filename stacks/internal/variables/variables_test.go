package variables

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	sigsyaml "sigs.k8s.io/yaml"
)

func substitute(t testing.TB, v Variables, manifest string) (string, error) {
	t.Helper()
	raw, err := sigsyaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	out, err := v.Substitute(object, nil)
	if err != nil {
		return "", err
	}
	raw, err = json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw), nil
}

func TestSubstitute(t *testing.T) {
	v := Variables{"n": "3", "on": "true", "text": "a b", "empty": "", "name": "web", "quote": `"`, "quoted": `"9797"`,
		"tagged": "!!str 123", "map": "a: b", "list": "[a]", "lines": "a\nb: c\n", "comment": "a # b", "anchor": "&a b",
		"template": "${n} {{ x }}", "null": "null", "big": "12345678901234567890123", "octal": "0o17", "yes": "yes",
		"colon": "a:b", "dash": "- a", "doc": "---", "brace": "{a: b}", "alias": "*a", "tab": "\ta", "spaces": "  a  "}
	for template, want := range map[string]string{
		"a: ${n}":                         `{"a":3}`,
		`a: "${n}"`:                       `{"a":3}`,
		"a: x${n}":                        `{"a":"x3"}`,
		"a: ${on}":                        `{"a":true}`,
		"a: ${yes}":                       `{"a":true}`,
		"a: ${text}":                      `{"a":"a b"}`,
		"a: ${empty}":                     `{"a":null}`,
		"a: ${null}":                      `{"a":null}`,
		"a: ${quote}${n}${quote}":         `{"a":"3"}`,
		"a: ${quoted}":                    `{"a":"9797"}`,
		"a: ${tagged}":                    `{"a":"123"}`,
		"a: ${map}":                       `{"a":"a: b"}`,
		"a: ${list}":                      `{"a":"[a]"}`,
		"a: ${brace}":                     `{"a":"{a: b}"}`,
		"a: ${dash}":                      `{"a":"- a"}`,
		"a: ${doc}":                       `{"a":"---"}`,
		"a: ${alias}":                     `{"a":"*a"}`,
		"a: ${lines}":                     `{"a":"a\nb: c\n"}`,
		"a: ${comment}":                   `{"a":"a # b"}`,
		"a: ${anchor}":                    `{"a":"\u0026a b"}`,
		"a: ${template}":                  `{"a":"${n} {{ x }}"}`,
		"a: ${colon}":                     `{"a":"a:b"}`,
		"a: ${octal}":                     `{"a":15}`,
		"a: '1 # ${n}'":                   `{"a":"1 # 3"}`,
		"a: ': ${n}'":                     `{"a":": 3"}`,
		"a: |\n  x ${n}\n  y":             `{"a":"x 3\ny"}`,
		"a: $${n} ${n}":                   `{"a":"${n} 3"}`,
		"a: $n ${name:=x}":                `{"a":"$n web"}`,
		"a: ${gone:=5}":                   `{"a":5}`,
		"a: ${gone:-${n}}":                `{"a":3}`,
		"a: ${empty:=x}":                  `{"a":"x"}`,
		"a: ${name^^} ${#name}":           `{"a":"WEB 3"}`,
		"a: ${name/w/W}":                  `{"a":"Web"}`,
		"${name}: {'${n}': [x, '${on}']}": `{"web":{"3":["x",true]}}`,
		"spec: {replicas: '${n}', name: '${name}'}": `{"spec":{"name":"web","replicas":3}}`,
		"metadata: {labels: {m: '${n}', e: '${empty}', o: '${on}', q: '${quoted}'}, annotations: {b: '${big}'}}": `{"metadata":{"annotations":{"b":` +
			`"12345678901234567890123"},"labels":{"e":"","m":"3","o":"true","q":"9797"}}}`,
		"spec: {template: {metadata: {labels: {m: '${n}'}}}}": `{"spec":{"template":{"metadata":{"labels":{"m":"3"}}}}}`,
		"apiVersion: v1\nkind: ConfigMap\ndata: {m: '${n}'}":  `{"apiVersion":"v1","data":{"m":"3"},"kind":"ConfigMap"}`,
		"apiVersion: x/v1\nkind: X\ndata: {m: '${n}'}":        `{"apiVersion":"x/v1","data":{"m":3},"kind":"X"}`,
		"metadata: {annotations: {ksctl.com/substitute: 'false'}}\na: ${x}": `{"a":"${x}","metadata":` +
			`{"annotations":{"ksctl.com/substitute":"false"}}}`,
		"metadata: {labels: {kustomize.toolkit.fluxcd.io/substitute: disabled}}\na: ${x}": `{"a":"${x}","metadata":` +
			`{"labels":{"kustomize.toolkit.fluxcd.io/substitute":"disabled"}}}`,
	} {
		got, err := substitute(t, v, template)
		if err != nil || got != want {
			t.Errorf("%s:\n got %s %v\nwant %s", template, got, err, want)
		}
	}
}

func TestSubstituteRejects(t *testing.T) {
	long := strings.Repeat("a", 20_000)
	v := Variables{"name": "web", "same": "web", "long": long}
	for template, want := range map[string]string{
		"spec: {a: [x, '${nam}']}":                        `spec.a.1: the variable "nam" is not set, and has no default (${nam:=default})`,
		"a: ${gone^^}":                                    `a: the variable "gone" is not set`,
		"a: ${x":                                          "a: the variables in this text cannot be read",
		"a: ${arr[@]}":                                    "a: the variables in this text cannot be read",
		"b: {'${name}': 1, '${same}': 2}":                 `b: the key "web" is there twice after the substitution`,
		"a: ${long//a/" + long + "}":                      "a: the text may have more than 1048576 bytes",
		"a: ${long//a/${long//a/xxx}}":                    "a: the text may have more than 1048576 bytes",
		"a: [" + strings.Repeat("'${long}', ", 300) + "]": "a.209: the object has more than 4194304 bytes",
		"a: " + strings.Repeat("${long}", 60):             "a: the text may have more than 1048576 bytes",
	} {
		_, err := substitute(t, v, template)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.50s: got %v, want %s", template, err, want)
		}
	}
}

func TestSecretVariables(t *testing.T) {
	v, secret := Variables{"pw": "a: 'b'\n\"5\"", "number": "5", "host": "db"}, sets.New("pw", "number")
	object := map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{
		"url": "postgres://${pw}@${host}", "n": "${number}", "${host}": "x"}}
	out, err := v.Substitute(object, secret)
	want := map[string]any{"url": "postgres://a: 'b'\n\"5\"@db", "n": "5", "db": "x"}
	if err != nil || !reflect.DeepEqual(out["stringData"], want) {
		t.Errorf("got %v, %v", out, err)
	}
	for _, object := range []map[string]any{
		{"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"${pw}": "x"}},
		{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"x": "${pw}"}},
		{"apiVersion": "v1", "kind": "Secret", "stringData": "${pw}"},
		{"apiVersion": "v1", "kind": "ConfigMap", "stringData": map[string]any{"x": "${pw}"}},
		{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"x": "${gone:=${number}}"}},
		{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"labels": map[string]any{"x": "${#pw}"}}},
	} {
		out, err := v.Substitute(object, secret)
		if err == nil || !strings.Contains(err.Error(), "from a Secret") || strings.Contains(err.Error(), "b'") {
			t.Errorf("got %v, %v", out, err)
		}
	}
}

// FuzzSubstitute substitutes any value in any text: keys, siblings and the shape stay.
func FuzzSubstitute(f *testing.F) {
	for _, seed := range []string{"1", "a: b", "- x", "\n", `"`, "${v}", "{{ x }}", "&a", "!!int 3", "? x", "%TAG",
		"1e400"} {
		f.Add("${v}", seed)
		f.Add("x ${v:1:2} ${w:=${v}}", seed)
	}
	f.Fuzz(func(t *testing.T, template, value string) {
		object := map[string]any{"a": template, "b": []any{int64(1), "${v}"}, "c": "same"}
		out, err := Variables{"v": value}.Substitute(object, nil)
		if err != nil {
			return
		}
		list, _ := out["b"].([]any)
		if len(out) != 3 || out["c"] != "same" || len(list) != 2 || list[0] != int64(1) {
			t.Fatalf("%q, %q: got %v", template, value, out)
		}
		for _, v := range []any{out["a"], list[1]} {
			switch v.(type) {
			case map[string]any, []any:
				t.Fatalf("%q, %q: got %v", template, value, out)
			}
		}
	})
}
