package readyexpr

import (
	"errors"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
)

// deepCost makes comparing cost what it takes: by itself CEL takes a comparison
// of whole objects for one step.
type deepCost struct{}

// CallCost implements interpreter.ActualCostEstimator.
func (deepCost) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	switch function {
	case operators.Equals, operators.NotEquals, operators.In:
	default:
		return nil
	}
	cost := uint64(1)
	for _, a := range args {
		cost += values(a.Value(), maxExprCost)
	}
	return &cost
}

// values counts the values that a value consists of, up to a limit.
func values(v any, limit uint64) uint64 {
	n := uint64(1)
	switch c := v.(type) {
	case map[string]any:
		for _, e := range c {
			if n > limit {
				break
			}
			n += values(e, limit-n)
		}
	case []any:
		for _, e := range c {
			if n > limit {
				break
			}
			n += values(e, limit-n)
		}
	case string:
		n += uint64(len(c) / 64)
	}
	return n
}

var (
	errMap         = errors.New("map is not available in an expression")
	errLoopLiteral = errors.New("a list or map in an expression can't hold a loop variable")
)

// checkBounded refuses what could double a value again and again, where the
// limit of cost does not count: a list that holds a loop variable twice, bound
// to the variable of the next loop, and so on, is small until it is compared.
func checkBounded(e ast.Expr, loops []string) error {
	switch e.Kind() {
	case ast.SelectKind:
		return checkBounded(e.AsSelect().Operand(), loops)
	case ast.CallKind:
		return checkCall(e.AsCall(), loops)
	case ast.ListKind:
		return checkLiteral(e.AsList().Elements(), loops)
	case ast.MapKind:
		var parts []ast.Expr
		for _, entry := range e.AsMap().Entries() {
			parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
		return checkLiteral(parts, loops)
	case ast.StructKind:
		return errors.New("messages are not available in an expression")
	}
	return nil
}

func checkCall(c ast.CallExpr, loops []string) error {
	name := c.FunctionName()
	if name == "map" && c.IsMemberFunction() {
		return errMap
	}
	args := c.Args()
	if c.IsMemberFunction() {
		if err := checkBounded(c.Target(), loops); err != nil {
			return err
		}
		if len(args) == 2 && args[0].Kind() == ast.IdentKind {
			switch name {
			case "all", "exists", "exists_one", "filter":
				loops = append(loops[:len(loops):len(loops)], args[0].AsIdent())
				args = args[1:]
			}
		}
	}
	for _, a := range args {
		if err := checkBounded(a, loops); err != nil {
			return err
		}
	}
	return nil
}

func checkLiteral(parts []ast.Expr, loops []string) error {
	for _, p := range parts {
		if err := checkBounded(p, loops); err != nil {
			return err
		}
		if mentions(p, loops) {
			return errLoopLiteral
		}
	}
	return nil
}

func mentions(e ast.Expr, names []string) bool {
	found := false
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.IdentKind {
			return
		}
		for _, n := range names {
			found = found || e.AsIdent() == n
		}
	}))
	return found
}
