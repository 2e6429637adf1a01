// Package readyexpr evaluates the readyExpr of stacks: CEL expressions over an object that return
// whether it is ready. Stack validation and the live index use the same code, so that every
// expression that passes validation also works at run time.
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

// Limits of an expression. An expression comes from a tenant's stack, and runs in this process for
// every change of an object.
const (
	maxExpr                 = 2048    // bytes
	maxExprCost             = 100_000 // CEL cost units; a loop iteration costs a few
	maxExprTime             = time.Second
	maxExprCached           = 256
	interruptCheckFrequency = 100 // loop iterations between checks of the context
)

// exprVariables are the variables of an expression besides self.
var exprVariables = []string{"apiVersion", "kind", "metadata", "spec", "status"}

// NotBoolError is the error of a ready expression that does not return a bool. Type is the CEL type
// that it returns.
type NotBoolError struct{ Type string }

func (e *NotBoolError) Error() string { return "returns " + e.Type + ", not a bool" }

type compiledExpr struct {
	program cel.Program
	err     error
}

var (
	exprCache = lru.New(maxExprCached)
	exprEnvs  = sync.OnceValues(newExprEnvs)
)

type envs struct {
	// raw parses macros as plain calls; full expands them.
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
	// Without map and optMap, an expression cannot build up a value step by step, see
	// checkBounded.
	full, err := raw.Extend(cel.Macros(cel.HasMacro, cel.AllMacro, cel.ExistsMacro, cel.ExistsOneMacro,
		cel.FilterMacro))
	return envs{raw: raw, full: full}, err
}

// Check returns an error if a ready expression is invalid: a syntax error, an unknown variable or
// function, a result that is not a bool, more than 2 KiB, or an unsupported construct. The macro
// map, and lists or maps with loop variables are not supported, so that no value can grow beyond
// the size of the object.
func Check(expr string) error {
	_, err := compileCached(expr, purposeReadiness)
	return err
}

// purpose is the purpose of an expression: readiness, which must return a bool, or any value.
type purpose bool

const (
	purposeReadiness purpose = false
	purposeValue     purpose = true
)

type cacheKey struct {
	expr string
	purpose
}

func compileCached(expr string, p purpose) (cel.Program, error) {
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("the expression has %d bytes; at most %d are allowed", len(expr), maxExpr)
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
	if t := checked.OutputType(); p == purposeReadiness && t != cel.BoolType && t != cel.DynType {
		return nil, &NotBoolError{Type: t.String()}
	}
	return env.full.Program(checked,
		cel.CostLimit(maxExprCost),
		cel.CostTracking(comparisonCost{}),
		cel.InterruptCheckFrequency(interruptCheckFrequency),
		cel.EvalOptions(cel.OptOptimize))
}

// Eval returns whether an object is ready according to an expression. A reference to a field that
// does not exist is an error.
func Eval(expr string, object map[string]any) (bool, error) {
	out, err := eval(expr, purposeReadiness, object)
	if err != nil {
		return false, err
	}
	ready, ok := out.(types.Bool)
	if !ok {
		return false, &NotBoolError{Type: out.Type().TypeName()}
	}
	return bool(ready), nil
}

// maxValue is the maximum length of a string that Value returns, in bytes.
const maxValue = 4096

// Value returns the result of an expression over an object: a string, an int64, a float64 or a
// bool. The limits of ready expressions apply.
func Value(expr string, object map[string]any) (any, error) {
	out, err := eval(expr, purposeValue, object)
	if err != nil {
		return nil, err
	}
	switch v := out.(type) {
	case types.String:
		if len(v) > maxValue {
			return nil, fmt.Errorf("returns a string of %d bytes; at most %d are allowed", len(v), maxValue)
		}
		return string(v), nil
	case types.Bool, types.Int, types.Double:
		return v.Value(), nil
	}
	return nil, fmt.Errorf("returns %s, not a string, a number or a bool", out.Type().TypeName())
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
