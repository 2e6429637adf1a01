package readyexpr

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func decodeJSON(t *testing.T, s string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal([]byte(s), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEval(t *testing.T) {
	object := decodeJSON(t, `{
		"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "a", "generation": 3},
		"spec": {"size": 2, "ratio": 0.5},
		"status": {"observedGeneration": 3, "ready": 2, "conditions": [
			{"type": "Ready", "status": "True", "observedGeneration": 3},
			{"type": "Healthy", "status": "False"}]}}`)
	for _, tc := range []struct {
		expr string
		want bool
	}{
		{`true`, true},
		{`status.ready == spec.size`, true},
		{`self.status.ready >= 3`, false},
		{`spec.ratio < 1`, true},
		{`kind == 'Thing' && apiVersion == 'x.io/v1' && metadata.name.startsWith('a')`, true},
		{`status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')`, true},
		{`status.conditions.filter(c, c.type == 'Ready').all(c, c.status == 'True' && c.observedGeneration == metadata.generation)`, true},
		{`status.conditions.exists_one(c, c.status == 'True')`, true},
		{`has(status.phase) && status.phase == 'Up'`, false},
		{`status.?phase.orValue('Up') == 'Up'`, true},
		{`status.conditions.exists(c, c.type in ['Healthy', 'Sound'])`, true},
	} {
		got, err := Eval(tc.expr, object)
		if err != nil || got != tc.want {
			t.Errorf("%s: got %v, %v; want %v", tc.expr, got, err, tc.want)
		}
	}
}

func TestEvalFails(t *testing.T) {
	object := decodeJSON(t, `{"kind": "Thing", "spec": {"size": 2}}`)
	for _, tc := range []struct{ expr, want string }{
		{`status.ready == 1`, "status"},
		{`spec.phase == 'Up'`, "no such key: phase"},
		{`spec.size`, "not a bool"},
	} {
		if _, err := Eval(tc.expr, object); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", tc.expr, err, tc.want)
		}
	}
}

func TestCheckRejectsInvalidExpressions(t *testing.T) {
	for _, tc := range []struct{ expr, want string }{
		{``, ""},
		{`status.`, "Syntax error"},
		{`unknown == 1`, "undeclared reference"},
		{`'text'`, "not a bool"},
		{`nofunction(self)`, "undeclared reference"},
		{`status.list.map(x, x) == []`, "map is not available"},
		{`[1].exists(a, [[a, a]].exists(b, b == b))`, "loop variable"},
		{`[1].exists(a, {'x': a}.x == 1)`, "loop variable"},
		{`optional.of([1]).optMap(x, x + x).hasValue()`, "undeclared reference"},
		{`'` + strings.Repeat("x", maxExpr) + `' == ''`, "at most"},
	} {
		if err := Check(tc.expr); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.60s: got %v, want an error with %q", tc.expr, err, tc.want)
		}
	}
}

// An expression comes from a tenant. Its evaluation is cheap, whatever the expression.
func TestEvalIsBounded(t *testing.T) {
	list := strings.TrimSuffix(strings.Repeat(`{"a":{"b":["c","d"]}},`, 5000), ",")
	object := decodeJSON(t, `{"kind": "Thing", "spec": {"list": [`+list+`], "text": "`+strings.Repeat("a", 100_000)+
		`"}}`)
	nested := `spec.list.all(a, spec.list.all(b, spec.list.all(c, a.a.b[0] == 'c')))`
	for _, expr := range []string{
		nested,
		`spec.list.all(x, self == self)`,
		`spec.list.exists(x, ` + strings.Repeat("spec.text + ", 100) + `'' == 'x')`,
		`spec.list.exists(x, spec.text.matches('(a*)*(a*)*(a*)*b'))`,
		strings.Repeat("(", 900) + "true" + strings.Repeat(")", 900),
		strings.Repeat("!", 2000) + "true",
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + " == []",
	} {
		began := time.Now()
		_, err := Eval(expr, object)
		// Far above maxExprTime, because the machine may be busy. An unbounded evaluation takes
		// hours.
		if took := time.Since(began); took > 60*maxExprTime {
			t.Errorf("%.60s took %s (%v)", expr, took, err)
		}
	}
	if _, err := Eval(nested, object); err == nil {
		t.Error("a cubic loop did not exceed the limits")
	}
}

func TestProgramCacheIsBounded(t *testing.T) {
	for i := range 2 * maxExprCached {
		if err := Check(fmt.Sprintf("spec.n == %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := exprCache.Len(); n > maxExprCached {
		t.Errorf("the cache has %d programs, want at most %d", n, maxExprCached)
	}
}

func TestCheckReturnsNotBoolError(t *testing.T) {
	var nb *NotBoolError
	if err := Check("1"); !errors.As(err, &nb) || nb.Type != "int" {
		t.Errorf("got %v", err)
	}
}
