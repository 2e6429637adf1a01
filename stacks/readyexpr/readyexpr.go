// Package readyexpr judges objects by CEL expressions that stacks give
// (readyExpr). Stacks are checked with the same code that the live index judges
// with, so that what a stack may say is what works.
package readyexpr

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
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
	_, err := compileCached(expr, judging)
	return err
}

// purpose is what an expression is for: to judge, which gives a bool, or to give a value.
type purpose bool

const (
	judging purpose = false
	valuing purpose = true
)

type cacheKey struct {
	expr string
	purpose
}

func compileCached(expr string, p purpose) (cel.Program, error) {
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("%d bytes, at most %d", len(expr), maxExpr)
	}
	key := cacheKey{expr, p}
	if c, ok := exprCache.Get(key); ok {
		return c.(compiledExpr).program, c.(compiledExpr).err
	}
	var c compiledExpr
	c.program, c.err = compile(expr, p)
	exprCache.Add(key, c)
	return c.program, c.err
}

func compile(expr string, p purpose) (cel.Program, error) {
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
	if t := checked.OutputType(); p == judging && t != cel.BoolType && t != cel.DynType {
		return nil, &NotBoolError{Type: t.String()}
	}
	return env.full.Program(checked,
		cel.CostLimit(maxExprCost),
		cel.CostTracking(deepCost{}),
		cel.InterruptCheckFrequency(checkEvery),
		cel.EvalOptions(cel.OptOptimize))
}

// Eval says whether an object is ready by an expression. A field that is not
// there yet is an error.
func Eval(expr string, object map[string]any) (bool, error) {
	out, err := eval(expr, judging, object)
	if err != nil {
		return false, err
	}
	is, ok := out.(types.Bool)
	if !ok {
		return false, &NotBoolError{Type: out.Type().TypeName()}
	}
	return bool(is), nil
}

// maxValue is the longest text that Value gives, in bytes.
const maxValue = 4096

// Value is what an expression over an object gives: a text, a number or a bool, within the
// bounds of those that judge.
func Value(expr string, object map[string]any) (any, error) {
	out, err := eval(expr, valuing, object)
	if err != nil {
		return nil, err
	}
	switch v := out.(type) {
	case types.String:
		if len(v) > maxValue {
			return nil, fmt.Errorf("gives a text of %d bytes, at most %d", len(v), maxValue)
		}
		return string(v), nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Double:
		return float64(v), nil
	}
	return nil, fmt.Errorf("gives %s, not a text, a number or a bool", out.Type().TypeName())
}

func eval(expr string, p purpose, object map[string]any) (ref.Val, error) {
	program, err := compileCached(expr, p)
	if err != nil {
		return nil, err
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
	return out, err
}
