package expr

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// testScope has parameters of several types.
var testScope = Scope{
	Stack: object(map[string]any{"zone": schema("string"), "storage-class": schema("string"),
		"count": schema("integer")}),
	Params: object(map[string]any{"on": schema("boolean"), "n": schema("integer"), "f": schema("number"),
		"gone": schema("string"),
		"list": map[string]any{"type": "array"}, "names": map[string]any{"type": "array", "items": schema("string")},
		"limits": object(map[string]any{"cpu": schema("string")}), "labels": schema("object"), "x": map[string]any{},
		"sizes":  map[string]any{"type": "object", "additionalProperties": schema("integer")},
		"either": map[string]any{"anyOf": []any{schema("string"), schema("integer")}}}),
}

func schema(name string) map[string]any { return typed(name) }

func compiler(t testing.TB) *Compiler {
	t.Helper()
	c, err := NewCompiler(testScope)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMap(t *testing.T) {
	params := map[string]any{"on": true, "n": int64(3), "f": 1.5, "list": []any{"a", map[string]any{"b": nil}}}
	for source, want := range map[string]string{
		`{}`:     `{}`,
		`params`: `{"f":1.5,"list":["a",{"b":null}],"n":3,"on":true}`,
		`params.on ? {'values': {'a': params.n + 1}} : {'images': []}`:                                   `{"values":{"a":4}}`,
		`!params.on ? {'values': {}} : params.n > 2 ? {'replicas': [{'count': params.n}]} : {}`:          `{"replicas":[{"count":3}]}`,
		`{'values': params.on ? {'x': {'y': 1}} : {'x': 'off'}}`:                                         `{"values":{"x":{"y":1}}}`,
		`{'values': {'l': params.on ? [1, 'two'] : []}}`:                                                 `{"values":{"l":[1,"two"]}}`,
		`{'v': version + '-' + stack.zone, 's': 'a,b'.split(','), 'has': has(params.gone)}`:              `{"has":false,"s":["a","b"],"v":"1.2.3-eu"}`,
		`{'m': params.list.map(x, type(x) == string)}`:                                                   `{"m":[true,false]}`,
		`{'c': stack['storage-class'], 'o': params[?'gone'].orValue('none'), 'p': params.?n.orValue(0)}`: `{"c":"fast","o":"none","p":3}`,
		`{'u': uint(7), 'half': 0.5}`:                                                                    `{"half":0.5,"u":7}`,
	} {
		m, err := compiler(t).CompileMap(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		out, err := m.EvalMap(t.Context(), Variables{Params: params, Version: "1.2.3",
			Stack: map[string]any{"zone": "eu", "storage-class": "fast"}})
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if raw, _ := json.Marshal(out); string(raw) != want {
			t.Errorf("%s: got %s, want %s", source, raw, want)
		}
	}
}

func TestMapRejectsInvalidExpressions(t *testing.T) {
	for source, want := range map[string]string{
		`params.on ? {'a': prams} : {}`:            `undeclared reference to 'prams' (in container '') (at 1:19 of the expression)`,
		`params.`:                                  `does not compile: Syntax error`,
		`{'a': base64.decode(1)}`:                  `no matching overload for 'base64.decode'`,
		`{'a': namespace + 1}`:                     `no matching overload`,
		`'text'`:                                   `must return a map, not string`,
		`params.n`:                                 `must return a map, not int`,
		`{'a': params.retenton}`:                   `undefined field 'retenton'`,
		`params.on ? {} : {'a': stack.zoen}`:       `undefined field 'zoen'`,
		`{'a': stack['zoen']}`:                     `undefined field 'zoen'`,
		`{'a': params.limits.memory}`:              `undefined field 'memory'`,
		`{'a': params.names[0] + 1}`:               `found no matching overload for '_+_' applied to '(string, int)'`,
		`{'a': params.sizes.x + 'a'}`:              `found no matching overload for '_+_' applied to '(int, string)'`,
		`{'a': 'x' + stack.count}`:                 `found no matching overload for '_+_' applied to '(string, int)'`,
		`{'a': params.n ? 1 : 2}`:                  `found no matching overload for '_?_:_'`,
		`{1: 2}`:                                   `returns a map whose keys are not strings`,
		`{'a': b'\xff'}`:                           `returns bytes that are no text in UTF-8`,
		`{'a': 1.0 / 0.0}`:                         `returns a number that JSON doesn't have`,
		`{'a': 18446744073709551615u}`:             `returns a number that is too large`,
		`{'a': timestamp('2024-01-01T00:00:00Z')}`: `which JSON doesn't have`,
		`{'a': params.gone}`:                       `failed: no such key: gone`,
		strings.Repeat("(", 200) + "{}" + strings.Repeat(")", 200): `does not compile`,
		"{}" + strings.Repeat(" ", maxSource):                      `characters; 16384 are allowed`,
		`{'a': [1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10].map(c, [1,2,3,4,5,6,7,8,9,10].map(d, [1,2,3,4,5,6,7,8,9,10].map(e, [1,2,3,4,5,6,7,8,9,10].map(f, f))))))}`: `cost limit exceeded`,
	} {
		m, err := compiler(t).CompileMap(source)
		if err == nil {
			_, err = m.EvalMap(t.Context(), Variables{Params: map[string]any{"n": int64(1)}})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %s", source, err, want)
		}
	}
}

func TestEvalStopsWhenCanceled(t *testing.T) {
	m, err := compiler(t).CompileMap(
		`{'a': [1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10].map(c, a + b + c)))}`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Eval(ctx, Variables{}); err == nil {
		t.Error("evaluation with a canceled context succeeded")
	}
}

// The size of the result has its own limit, because returning a list from the parameters costs
// nothing.
func TestResultsAreBounded(t *testing.T) {
	many := make([]any, maxValues)
	for i := range many {
		many[i] = int64(i)
	}
	var deep any = "x"
	for range maxDepth + 1 {
		deep = []any{deep}
	}
	m, err := compiler(t).CompileMap(`{'a': params.x}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]any{"many values": many, "deep values": deep} {
		if _, err := m.Eval(t.Context(), Variables{Params: map[string]any{"x": x}}); err == nil ||
			!strings.Contains(err.Error(), "returns too many or too deeply nested values") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.Eval(t.Context(), Variables{Params: map[string]any{"x": many[:maxValues-3]}}); err != nil {
		t.Errorf("exactly as many values as allowed: %v", err)
	}
}

func TestCompileResults(t *testing.T) {
	vars := Variables{Params: map[string]any{"on": true, "n": int64(3), "f": 2.5, "either": int64(1),
		"labels": map[string]any{"a": "b"}},
		Name: "site", Namespace: "team", Version: "1.0.0"}
	for source, want := range map[string]string{
		"params.n": "3", "params.f": "2.5", "params.on": "true", "'a' + version": `"a1.0.0"`, "null": "null",
		"name + '/' + namespace": `"site/team"`, "params.labels": `{"a":"b"}`, "params.either": "1",
		"params.labels.exists(k, k == 'a')": "true",
	} {
		x, err := compiler(t).Compile(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		out, err := x.Eval(t.Context(), vars)
		if raw, _ := json.Marshal(out); err != nil || string(raw) != want {
			t.Errorf("%s: got %s, %v, want %s", source, raw, err, want)
		}
	}
	if _, err := compiler(t).CompileBool("params.n"); err == nil ||
		err.Error() != "must return true or false, not int" {
		t.Errorf("got %v", err)
	}
	if _, err := compiler(t).CompileBool("params.x"); err != nil {
		t.Error(err)
	}
}

// Where the schema of the parameters allows more than it lists, an expression may read it.
func TestOpenParameters(t *testing.T) {
	for _, open := range []map[string]any{{"additionalProperties": schema("string")},
		{"patternProperties": map[string]any{}},
		{"allOf": []any{}}, {"$ref": "#/definitions/x"}} {
		open["properties"] = map[string]any{"a": schema("string")}
		c, err := NewCompiler(Scope{Stack: open})
		if err == nil {
			_, err = c.Compile("stack.other + stack.a")
		}
		if err != nil {
			t.Errorf("%v: %v", open, err)
		}
	}
}
