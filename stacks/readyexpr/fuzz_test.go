package readyexpr

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/json"
)

// FuzzEval evaluates arbitrary expressions over arbitrary objects. Each evaluation ends in bounded
// time with true, false or an error. Eval never runs an expression that Check rejects.
func FuzzEval(f *testing.F) {
	object := `{"apiVersion":"x.io/v1","kind":"Thing","metadata":{"name":"x","generation":3},"spec":{"list":[{"a":1,"b":"x"},{"a":2.5}]},"status":{"phase":"Up","conditions":[{"type":"Ready","status":"True"}]}}`
	for _, expr := range []string{
		`status.phase == 'Up'`, `self.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')`,
		`status.?observedGeneration.orValue(0) == metadata.generation`, `[1].exists(x, [x] == [1])`,
		`spec.list.filter(x, x.a > 1).all(x, has(x.b))`,
		`'a'.matches('(a+)+$')`, `self`, `1 / 0 == 1`, `spec.list.all(x, spec.list.all(y, spec.list.all(z, x == z)))`,
		`timestamp('2020-01-01T00:00:00Z') < timestamp('x')`,
		`{'a': [1, 2]}[status.phase] == [1]`, `string(self) == ''`, `size(spec) > 18446744073709551615u`,
	} {
		f.Add(expr, object)
		f.Add(expr, `{}`)
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		var m map[string]any
		if json.Unmarshal([]byte(text), &m) != nil {
			t.Skip()
		}
		refused := Check(expr)
		began := time.Now()
		is, err := Eval(expr, m)
		// Far above maxExprTime, because the machine may be busy. An endless loop still exceeds it.
		if took := time.Since(began); took > 30*maxExprTime {
			t.Fatalf("%q took %s", expr, took)
		}
		if err != nil && (is || err.Error() == "") {
			t.Fatalf("%q: %v and %v", expr, is, err)
		}
		if refused != nil && err == nil {
			t.Fatalf("%q was evaluated, although Check rejects it: %v", expr, refused)
		}
		if wrong := new(NotBoolError); errors.As(err, &wrong) && wrong.Type == "bool" {
			t.Fatalf("%q: %v", expr, err)
		}
	})
}
