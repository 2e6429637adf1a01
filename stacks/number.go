package stacks

import (
	"encoding/json"
	"fmt"

	"github.com/ksctl/gitops/stacks/internal/expr"
)

// Number is an integer, or in a stack file also {expr: CEL}: the integer that an expression over
// the variables of Field.Value returns.
type Number struct {
	Number int32
	Expr   string `json:"expr"`
}

// ScalarField returns the field for a number without an expression. It makes document.Decode accept
// both forms.
func (n *Number) ScalarField() any { return &n.Number }

// MarshalJSON encodes both forms as they are written in a stack file.
func (n Number) MarshalJSON() ([]byte, error) {
	if n.Expr == "" {
		return json.Marshal(n.Number)
	}
	return json.Marshal(map[string]string{"expr": n.Expr})
}

// checkNumber checks a number of a component, or compiles its expression.
func (x *expressions) checkNumber(at fieldRef, n *Number, least, most int64) {
	_, written := x.v.def.lines[at.path]
	_, hasExpr := x.v.def.lines[at.path+".expr"]
	switch {
	case n.Expr != "":
		x.compile(at, n.Expr, (*expr.Compiler).CompileInteger)
	case hasExpr:
		x.v.fail(at, "needs an expression in expr")
	case !written:
		x.v.fail(at, "is required")
	default:
		if why := outside(int64(n.Number), least, most); why != "" {
			x.v.fail(at, "%s", why)
		}
	}
}

// number returns a number of a component, or what its expression returns. A number without an
// expression was checked when the stack was loaded.
func (r *resolver) number(at fieldRef, n *Number, vars expr.Variables, least, most int64) int32 {
	if n.Expr == "" {
		return n.Number
	}
	value, err := r.def.expressions[at.path].Eval(r.ctx, vars)
	out, isInteger := value.(int64)
	var why string
	switch secret := expr.FindSecret(value); {
	case err != nil:
		why = err.Error()
	case secret != nil:
		why = secretUse(secret)
	case !isInteger:
		why = "must return an integer"
	default:
		why = outside(out, least, most)
	}
	if why != "" {
		r.errs = append(r.errs, at.fieldErrorf("%s", why))
		return 0
	}
	return int32(out) //nolint:gosec // it is within the bounds
}

// outside returns why a number is out of bounds; empty for one within.
func outside(n, least, most int64) string {
	if n < least || n > most {
		return fmt.Sprintf("must be between %d and %d, not %d", least, most, n)
	}
	return ""
}
