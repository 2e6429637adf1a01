package expr

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

func TestMap(t *testing.T) {
	params := map[string]any{"on": true, "n": int64(3), "f": 1.5, "list": []any{"a", map[string]any{"b": nil}}}
	for source, want := range map[string]string{
		`{}`:     `{}`,
		`params`: `{"f":1.5,"list":["a",{"b":null}],"n":3,"on":true}`,
		`params.on ? {'values': {'a': params.n + 1}} : {'images': []}`:                          `{"values":{"a":4}}`,
		`!params.on ? {'values': {}} : params.n > 2 ? {'replicas': [{'count': params.n}]} : {}`: `{"replicas":[{"count":3}]}`,
		`{'values': params.on ? {'x': {'y': 1}} : {'x': 'off'}}`:                                `{"values":{"x":{"y":1}}}`,
		`{'values': {'l': params.on ? [1, 'two'] : []}}`:                                        `{"values":{"l":[1,"two"]}}`,
		`{'v': version + '-' + stack.zone, 's': 'a,b'.split(','), 'has': has(params.gone)}`:     `{"has":false,"s":["a","b"],"v":"1.2.3-eu"}`,
		`{'m': params.list.map(x, type(x) == string)}`:                                          `{"m":[true,false]}`,
		`{'u': uint(7), 'half': 0.5}`:                                                           `{"half":0.5,"u":7}`,
	} {
		m, err := NewMap(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		out, err := m.Eval(t.Context(), params, map[string]any{"zone": "eu"}, "1.2.3")
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
		`params.on ? {'a': prams} : {}`: `undeclared reference to 'prams' (in container '') (at 1:19 of the expression)`,
		`params.`:                       `does not compile: Syntax error`,
		`'text'`:                        `must return a map, not string`,
		`params.n`:                      `must return a map`,
		`{1: 2}`:                        `returns a map whose keys are not strings`,
		`{'a': b'bytes'}`:               `returns a bytes, which JSON doesn't have`,
		`{'a': 1.0 / 0.0}`:              `returns a number that JSON doesn't have`,
		`{'a': 18446744073709551615u}`:  `returns a number that is too large`,
		`{'a': timestamp('2024-01-01T00:00:00Z')}`:                 `which JSON doesn't have`,
		`{'a': params.gone}`:                                       `failed: no such key: gone`,
		strings.Repeat("(", 200) + "{}" + strings.Repeat(")", 200): `does not compile`,
		"{}" + strings.Repeat(" ", maxSource):                      `characters; 16384 are allowed`,
		`{'a': [1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10].map(c, [1,2,3,4,5,6,7,8,9,10].map(d, [1,2,3,4,5,6,7,8,9,10].map(e, [1,2,3,4,5,6,7,8,9,10].map(f, f))))))}`: `cost limit exceeded`,
	} {
		m, err := NewMap(source)
		if err == nil {
			_, err = m.Eval(t.Context(), map[string]any{"n": int64(1)}, nil, "")
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %s", source, err, want)
		}
	}
}

func TestEvalStopsWhenCanceled(t *testing.T) {
	m, err := NewMap(
		`{'a': [1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10].map(c, a + b + c)))}`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Eval(ctx, nil, nil, ""); err == nil {
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
	m, err := NewMap(`{'a': params.x}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]any{"many values": many, "deep values": deep} {
		if _, err := m.Eval(t.Context(), map[string]any{"x": x}, nil, ""); err == nil ||
			!strings.Contains(err.Error(), "returns too many or too deeply nested values") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.Eval(t.Context(), map[string]any{"x": many[:maxValues-3]}, nil, ""); err != nil {
		t.Errorf("exactly as many values as allowed: %v", err)
	}
}
