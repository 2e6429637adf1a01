// Package expr compiles and evaluates the CEL expressions of stacks, within limits.
package expr

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
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
	// bytesPerValue is how many bytes of text count as a further value.
	bytesPerValue = 64
)

var baseEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(append(functions(),
		ext.Strings(ext.StringsVersion(4)), ext.Lists(ext.ListsVersion(3)), ext.Sets(), ext.Math(), ext.Encoders(),
		ext.TwoVarComprehensions(), cel.OptionalTypes(), cel.DefaultUTCTimeZone(true),
		cel.ParserRecursionLimit(100))...)
})

// Compiler compiles expressions over the same variables.
type Compiler struct {
	env *cel.Env
	// optional allows an expression to return an optional value.
	optional bool
}

// NewCompiler returns a compiler for expressions over parameters with the schemas of a scope.
func NewCompiler(s Scope) (*Compiler, error) { return newCompiler(s.options()) }

func newCompiler(options []cel.EnvOption, err error) (*Compiler, error) {
	if err != nil {
		return nil, err
	}
	base, err := baseEnv()
	if err != nil {
		return nil, err
	}
	env, err := base.Extend(options...)
	return &Compiler{env: env}, err
}

// Expression is a compiled expression.
type Expression struct {
	program cel.Program
	tree    ast.Expr
	// reads are the paths that the expression reads, by variable.
	reads map[string][][]string
}

// ClusterPaths returns the paths of the variable cluster that the expression reads.
func (x *Expression) ClusterPaths() [][]string { return x.reads[clusterVariable] }

// Compile compiles an expression of any type.
func (c *Compiler) Compile(source string) (*Expression, error) { return c.compile(source, "any value") }

// CompileString compiles an expression that returns a text.
func (c *Compiler) CompileString(source string) (*Expression, error) {
	return c.compile(source, "a text", types.StringKind)
}

// CompileMap compiles an expression that returns a map.
func (c *Compiler) CompileMap(source string) (*Expression, error) {
	return c.compile(source, "a map", types.MapKind, types.StructKind)
}

// CompileInteger compiles an expression that returns an integer.
func (c *Compiler) CompileInteger(source string) (*Expression, error) {
	return c.compile(source, "an integer", types.IntKind)
}

// CompileBool compiles an expression that returns true or false.
func (c *Compiler) CompileBool(source string) (*Expression, error) {
	return c.compile(source, "true or false", types.BoolKind)
}

// writtenNames replaces names that only compiled expressions have by those that were written.
var writtenNames = strings.NewReplacer(namespaceVariable, "namespace", base64DecodeFunction, "base64.decode")

// compile compiles an expression that returns one of some kinds; of all if there are none.
func (c *Compiler) compile(source, result string, kinds ...types.Kind) (*Expression, error) {
	if len(source) > maxSource {
		return nil, problem.Newf("has %d characters; %d are allowed", len(source), maxSource)
	}
	checked, issues := c.env.Parse(renameNamespace(source))
	if issues.Err() == nil {
		selectConstantKeys(checked)
		refuseComparisons(checked)
		makeBranchesDynamic(checked)
		checked, issues = c.env.Check(checked)
	}
	if issues.Err() != nil {
		var lines []string
		for _, e := range issues.Errors() {
			lines = append(lines, fmt.Sprintf("%s (at %d:%d of the expression)", writtenNames.Replace(e.Message),
				e.Location.Line(), e.Location.Column()+1))
		}
		return nil, &problem.Error{Message: "does not compile: " + strings.Join(lines, "; "), Err: issues.Err()}
	}
	got := checked.OutputType()
	if c.optional && got.TypeName() == types.OptionalType.TypeName() {
		got = got.Parameters()[0]
	}
	if len(kinds) > 0 && got.Kind() != types.DynKind && !slices.Contains(kinds, got.Kind()) {
		return nil, problem.Newf("must return %s, not %s", result, got)
	}
	program, err := c.env.Program(checked, cel.CostLimit(maxCost), cel.CostTracking(functionCosts{}),
		cel.InterruptCheckFrequency(100), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, problem.Newf("does not compile: %w", err)
	}
	tree := checked.NativeRep().Expr()
	reads := map[string][][]string{}
	for _, variable := range []string{stackVariable, paramsVariable, clusterVariable, SelfVariable} {
		reads[variable] = readPaths(tree, variable)
	}
	return &Expression{program: program, tree: tree, reads: reads}, nil
}

// Eval evaluates an expression to plain JSON values, with integers as int64, and a *Secret for each
// secret value that it passes on.
func (x *Expression) Eval(ctx context.Context, v Variables) (any, error) {
	out, err := x.evaluate(ctx, map[string]any{paramsVariable: nonNil(v.Params), stackVariable: nonNil(v.Stack),
		clusterVariable: nonNil(v.Cluster),
		"version":       v.Version, "name": v.Name, namespaceVariable: v.Namespace})
	if err != nil {
		return nil, err
	}
	left := maxValues
	value, err := toNative(out, &left, 0)
	if _, misused := errors.AsType[*misuseError](err); misused {
		return nil, problem.Newf("failed: %w", err)
	}
	if err != nil {
		return nil, problem.Newf("returns %w", err)
	}
	return value, nil
}

// EvalMap evaluates an expression that returns a map.
func (x *Expression) EvalMap(ctx context.Context, v Variables) (map[string]any, error) {
	out, err := x.Eval(ctx, v)
	if err != nil {
		return nil, err
	}
	result, ok := out.(map[string]any)
	if !ok {
		return nil, problem.Newf("must return a map")
	}
	return result, nil
}

func (x *Expression) evaluate(ctx context.Context, vars map[string]any) (out ref.Val, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = problem.Newf("failed: %v", r)
		}
	}()
	out, _, err = x.program.ContextEval(ctx, vars)
	if err != nil {
		return nil, problem.Newf("failed: %w", x.explainMisuse(err, vars))
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
// number of values. An error is a noun phrase about what cannot be converted, or a *misuseError.
func toNative(v ref.Val, left *int, depth int) (any, error) {
	if *left--; *left < 0 || depth > maxDepth {
		return nil, errors.New("too many or too deeply nested values")
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool, types.Int:
		return v.Value(), nil
	case types.String:
		if *left -= len(v) / bytesPerValue; *left < 0 {
			return nil, errors.New("more text than is allowed")
		}
		return string(v), nil
	case types.Uint:
		if uint64(v) > math.MaxInt64 {
			return nil, errors.New("a number that is too large")
		}
		return int64(v), nil
	case types.Double:
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, errors.New("a number that JSON doesn't have")
		}
		return float64(v), nil
	case types.Bytes:
		if !utf8.Valid(v) {
			return nil, errors.New("bytes that are no text in UTF-8")
		}
		return toNative(types.String(v), left, depth)
	case *Secret:
		return v, nil
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
	return nil, fmt.Errorf("a %s, which JSON doesn't have", v.Type().TypeName())
}

func toNativeMap(v traits.Mapper, left *int, depth int) (any, error) {
	out := map[string]any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		if secret, ok := key.(*Secret); ok {
			return nil, secret.misused()
		}
		name, ok := key.(types.String)
		if !ok {
			return nil, errors.New("a map whose keys are not strings")
		}
		*left -= len(name) / bytesPerValue
		item, err := toNative(v.Get(key), left, depth+1)
		if err != nil {
			return nil, err
		}
		out[string(name)] = item
	}
	return out, nil
}
