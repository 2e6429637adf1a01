package readyexpr

import (
	"errors"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
)

// comparisonCost estimates the cost of comparisons by the size of their operands. CEL itself counts
// a comparison of whole objects as one step.
type comparisonCost struct{}

// CallCost implements interpreter.ActualCostEstimator.
func (comparisonCost) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	switch function {
	case operators.Equals, operators.NotEquals, operators.In:
	default:
		return nil
	}
	cost := uint64(1)
	for _, a := range args {
		cost += countValues(a.Value(), maxExprCost)
	}
	return &cost
}

// countValues counts the values nested in a value, up to a limit.
func countValues(v any, limit uint64) uint64 {
	n := uint64(1)
	switch c := v.(type) {
	case map[string]any:
		for _, e := range c {
			if n > limit {
				break
			}
			n += countValues(e, limit-n)
		}
	case []any:
		for _, e := range c {
			if n > limit {
				break
			}
			n += countValues(e, limit-n)
		}
	case string:
		n += uint64(len(c) / 64)
	}
	return n
}

var (
	errMap         = errors.New("map is not available in an expression")
	errLoopLiteral = errors.New("a list or map in an expression cannot contain a loop variable")
)

// checkBounded rejects constructs that can double a value repeatedly, because the cost limit does
// not catch them: a list that contains a loop variable twice, bound to the variable of the next
// loop, and so on, costs little until it is compared.
func checkBounded(e ast.Expr, loopVariables []string) error {
	switch e.Kind() {
	case ast.SelectKind:
		return checkBounded(e.AsSelect().Operand(), loopVariables)
	case ast.CallKind:
		return checkCall(e.AsCall(), loopVariables)
	case ast.ListKind:
		return checkLiteral(e.AsList().Elements(), loopVariables)
	case ast.MapKind:
		var parts []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return checkLiteral(parts, loopVariables)
	case ast.StructKind:
		return errors.New("messages are not available in an expression")
	}
	return nil
}

func checkCall(c ast.CallExpr, loopVariables []string) error {
	name := c.FunctionName()
	if name == "map" && c.IsMemberFunction() {
		return errMap
	}
	args := c.Args()
	if c.IsMemberFunction() {
		if err := checkBounded(c.Target(), loopVariables); err != nil {
			return err
		}
		if len(args) == 2 && args[0].Kind() == ast.IdentKind {
			switch name {
			case "all", "exists", "exists_one", "filter":
				loopVariables = append(loopVariables[:len(loopVariables):len(loopVariables)], args[0].AsIdent())
				args = args[1:]
			}
		}
	}
	for _, a := range args {
		if err := checkBounded(a, loopVariables); err != nil {
			return err
		}
	}
	return nil
}

func checkLiteral(parts []ast.Expr, loopVariables []string) error {
	for _, p := range parts {
		if err := checkBounded(p, loopVariables); err != nil {
			return err
		}
		if references(p, loopVariables) {
			return errLoopLiteral
		}
	}
	return nil
}

func references(e ast.Expr, names []string) bool {
	found := false
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.IdentKind && slices.Contains(names, e.AsIdent())
	}))
	return found
}
