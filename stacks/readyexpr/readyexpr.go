// Package readyexpr judges objects by CEL expressions that stacks give
// (readyExpr). Stacks are checked with the same code that the live index judges
// with, so that what a stack may say is what works.
package readyexpr

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/utils/lru"
)

// Bounds of a ready expression. It comes from a stack, that is from a tenant,
// and runs in this process for every change of an object.
const (
	maxExpr       = 2048    // bytes
	maxExprCost   = 100_000 // of CEL's units: a step of a loop takes a few
	maxExprTime   = time.Second
	maxExprCached = 256
	checkEvery    = 100 // iterations between looks at the clock
)

// exprVariables are what an expression sees besides self.
var exprVariables = []string{"apiVersion", "kind", "metadata", "spec", "status"}

// NotBoolError says that a ready expression gave something else than a bool.
type NotBoolError struct{ Type string }

func (e *NotBoolError) Error() string { return "gives " + e.Type + ", not a bool" }

type compiledExpr struct {
	program cel.Program
	err     error
}

var (
	exprCache = lru.New(maxExprCached)
	exprEnvs  = sync.OnceValues(newExprEnvs)
)

type envs struct {
	// raw leaves macros as the calls that they are written as.
	raw, full *cel.Env
}

func newExprEnvs() (envs, error) {
	opts := []cel.EnvOption{
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.Variable("self", cel.DynType),
		cel.ClearMacros(),
	}
	for _, v := range exprVariables {
		opts = append(opts, cel.Variable(v, cel.DynType))
	}
	raw, err := cel.NewEnv(opts...)
	if err != nil {
		return envs{}, err
	}
	// Without map and optMap nothing can be built up step by step, see checkBounded.
	full, err := raw.Extend(cel.Macros(cel.HasMacro, cel.AllMacro, cel.ExistsMacro, cel.ExistsOneMacro, cel.FilterMacro))
	return envs{raw: raw, full: full}, err
}

// Check reports why an expression can't judge objects: a syntax error, an unknown variable or function, a result
// that is no bool, more than 2 KiB, or a construct that is left out so that
// nothing can outgrow the object: map, and lists made of loop variables.
func Check(expr string) error {
	_, err := compileCached(expr)
	return err
}

func compileCached(expr string) (cel.Program, error) {
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("%d bytes, at most %d", len(expr), maxExpr)
	}
	if c, ok := exprCache.Get(expr); ok {
		return c.(compiledExpr).program, c.(compiledExpr).err
	}
	var c compiledExpr
	c.program, c.err = compile(expr)
	exprCache.Add(expr, c)
	return c.program, c.err
}

func compile(expr string) (cel.Program, error) {
	env, err := exprEnvs()
	if err != nil {
		return nil, err
	}
	parsed, issues := env.raw.Parse(expr)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if err := checkBounded(parsed.NativeRep().Expr(), nil); err != nil {
		return nil, err
	}
	checked, issues := env.full.Compile(expr)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if t := checked.OutputType(); t != cel.BoolType && t != cel.DynType {
		return nil, &NotBoolError{Type: t.String()}
	}
	return env.full.Program(checked,
		cel.CostLimit(maxExprCost),
		cel.CostTracking(deepCost{}),
		cel.InterruptCheckFrequency(checkEvery),
		cel.EvalOptions(cel.OptOptimize))
}

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
	errMap         = errors.New("map is not available in a ready expression")
	errLoopLiteral = errors.New("a list or map in a ready expression can't hold a loop variable")
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
		return errors.New("messages are not available in a ready expression")
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

// Eval says whether an object is ready by an expression. A field that is not
// there yet is an error.
func Eval(expr string, object map[string]any) (bool, error) {
	program, err := compileCached(expr)
	if err != nil {
		return false, err
	}
	vars := make(map[string]any, len(exprVariables)+1)
	vars["self"] = object
	for _, v := range exprVariables {
		if value, ok := object[v]; ok {
			vars[v] = value
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxExprTime)
	defer cancel()
	out, _, err := program.ContextEval(ctx, vars)
	if err != nil {
		return false, err
	}
	is, ok := out.(types.Bool)
	if !ok {
		return false, &NotBoolError{Type: out.Type().TypeName()}
	}
	return bool(is), nil
}
