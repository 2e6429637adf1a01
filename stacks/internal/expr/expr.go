// Package expr compiles and evaluates the CEL expressions of parameters.map, within limits.
package expr

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"

	"github.com/ksctl/gitops/stacks/problem"
)

// Limits of one expression.
const (
	maxSource = 16 << 10
	maxCost   = 1_000_000
	maxValues = 100_000
	maxDepth  = 64
)

var mapEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		ext.Strings(ext.StringsVersion(4)), ext.Lists(ext.ListsVersion(3)), ext.Sets(), ext.Math(), ext.Encoders(),
		ext.TwoVarComprehensions(), cel.OptionalTypes(), cel.DefaultUTCTimeZone(true), cel.ParserRecursionLimit(100),
		cel.Variable("params", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("stack", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("version", cel.StringType))
})

// Map is the compiled expression that maps parameters to an override.
type Map struct{ program cel.Program }

// NewMap compiles the map expression of a component.
func NewMap(source string) (*Map, error) {
	env, err := mapEnv()
	if err != nil {
		return nil, err
	}
	if len(source) > maxSource {
		return nil, problem.Newf("has %d characters; %d are allowed", len(source), maxSource)
	}
	ast, issues := env.Parse(source)
	if issues.Err() == nil {
		makeBranchesDynamic(ast)
		ast, issues = env.Check(ast)
	}
	if issues.Err() != nil {
		var lines []string
		for _, e := range issues.Errors() {
			lines = append(lines,
				fmt.Sprintf("%s (at %d:%d of the expression)", e.Message, e.Location.Line(), e.Location.Column()+1))
		}
		return nil, &problem.Error{Message: "does not compile: " + strings.Join(lines, "; "), Err: issues.Err()}
	}
	if got := ast.OutputType(); got.Kind() != types.MapKind && got.Kind() != types.DynKind {
		return nil, problem.Newf("must return a map, not %s", got)
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(100),
		cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, problem.Newf("does not compile: %w", err)
	}
	return &Map{program: program}, nil
}

// Eval evaluates the expression.
func (m *Map) Eval(ctx context.Context, params, stack map[string]any, version string) (map[string]any, error) {
	out, err := evaluate(ctx, m.program,
		map[string]any{"params": nonNil(params), "stack": nonNil(stack), "version": version})
	if err != nil {
		return nil, err
	}
	left := maxValues
	v, err := toNative(out, &left, 0)
	if err != nil {
		return nil, err
	}
	result, ok := v.(map[string]any)
	if !ok {
		return nil, problem.Newf("must return a map")
	}
	return result, nil
}

func evaluate(ctx context.Context, program cel.Program, vars map[string]any) (out ref.Val, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = problem.Newf("failed: %v", r)
		}
	}()
	out, _, err = program.ContextEval(ctx, vars)
	if err != nil {
		return nil, problem.Newf("failed: %w", err)
	}
	return out, nil
}

func nonNil(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// toNative converts a CEL value to plain JSON values, with integers as int64. left is the remaining
// number of values.
func toNative(v ref.Val, left *int, depth int) (any, error) {
	if *left--; *left < 0 || depth > maxDepth {
		return nil, problem.Newf("returns too many or too deeply nested values")
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool, types.Int, types.String:
		return v.Value(), nil
	case types.Uint:
		if uint64(v) > math.MaxInt64 {
			return nil, problem.Newf("returns a number that is too large")
		}
		return int64(v), nil
	case types.Double:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, problem.Newf("returns a number that JSON doesn't have")
		}
		return float64(v), nil
	case traits.Mapper:
		return toNativeMap(v, left, depth)
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			item, err := toNative(it.Next(), left, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, item)
		}
		return out, nil
	}
	return nil, problem.Newf("returns a %s, which JSON doesn't have", v.Type().TypeName())
}

func toNativeMap(v traits.Mapper, left *int, depth int) (any, error) {
	out := map[string]any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, problem.Newf("returns a map whose keys are not strings")
		}
		item, err := toNative(v.Get(key), left, depth+1)
		if err != nil {
			return nil, err
		}
		out[string(name)] = item
	}
	return out, nil
}
