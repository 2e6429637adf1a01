package expr

import (
	"context"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/ksctl/gitops/stacks/problem"
)

// Variables of the expressions of a served kind.
const (
	SelfVariable    = "self"
	ReadyVariable   = "ready"
	ObjectsVariable = "objects"
)

// readySchema is the schema of the variable ready: the Ready condition.
var readySchema = object(map[string]any{"status": typed("string"), "reason": typed("string"),
	"message": typed("string")})

// selfSchema returns the schema of a served object without its status.
func selfSchema(spec map[string]any) map[string]any {
	return object(map[string]any{"apiVersion": typed("string"), "kind": typed("string"), "spec": spec,
		"metadata": object(map[string]any{"name": typed("string"), "namespace": typed("string"), "labels": texts,
			"annotations": texts})})
}

// NewServedCompiler returns a compiler for expressions over a served object, whose spec has a
// schema. Expressions of its status also read its Ready condition, and the objects of its stack by
// kind and name. An expression may return an optional value: without a value, its field is left
// out.
func NewServedCompiler(spec map[string]any, status bool) (*Compiler, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	t := &schemaTypes{Registry: registry, objects: map[string]map[string]*types.Type{}}
	options := []cel.EnvOption{cel.CustomTypeProvider(t), cel.CustomTypeAdapter(registry),
		cel.Variable(SelfVariable, t.object(SelfVariable, selfSchema(spec)))}
	if status {
		byName := types.NewMapType(types.StringType, types.NewMapType(types.StringType, types.DynType))
		options = append(options, cel.Variable(ReadyVariable, t.object(ReadyVariable, readySchema)),
			cel.Variable(ObjectsVariable, byName))
	}
	c, err := newCompiler(options, nil)
	if err == nil {
		c.optional = true
	}
	return c, err
}

// jsonKinds are the kinds of the CEL values that fit a type of JSON.
var jsonKinds = map[string][]types.Kind{
	"string": {types.StringKind}, "boolean": {types.BoolKind}, "integer": {types.IntKind, types.UintKind},
	"number": {types.DoubleKind, types.IntKind, types.UintKind}, "array": {types.ListKind},
	"object": {types.MapKind, types.StructKind},
}

// CompileType compiles an expression that returns a JSON type such as "integer"; any type if it is
// empty.
func (c *Compiler) CompileType(source, jsonType string) (*Expression, error) {
	article := "a "
	if slices.Contains([]string{"array", "integer", "object"}, jsonType) {
		article = "an "
	}
	return c.compile(source, article+jsonType, jsonKinds[jsonType]...)
}

// EvalServed evaluates an expression of a compiler of NewServedCompiler. ok is false if it returns
// an optional value without a value.
func (x *Expression) EvalServed(ctx context.Context, vars map[string]any) (value any, ok bool, err error) {
	out, err := x.evaluate(ctx, vars)
	if err != nil {
		return nil, false, err
	}
	if optional, is := out.(*types.Optional); is {
		if !optional.HasValue() {
			return nil, false, nil
		}
		out = optional.GetValue()
	}
	left := maxValues
	value, err = toNative(out, &left, 0)
	return value, err == nil, err
}

// ObjectPath is a field of the objects of a kind that an expression reads.
type ObjectPath struct {
	// Kind is a kind, or Kind.group.
	Kind string
	Path []string
}

// ObjectPaths returns the fields of the variable objects that an expression reads. It returns an
// error if the expression uses a whole object, or objects of a kind that is not constant: what it
// reads could not be kept then.
func (x *Expression) ObjectPaths() (out []ObjectPath, err error) {
	err = objectPaths(x.tree, &out)
	return out, err
}

func objectPaths(e ast.Expr, out *[]ObjectPath) error {
	if path, other, ok := objectPath(e); ok {
		switch {
		case len(path) < 3 || path[0] == "":
			return problem.Newf("must read fields of objects, such as " +
				"objects.Service[self.metadata.name].spec.clusterIP")
		case slices.Contains(path[2:], ""):
			path = path[:2+slices.Index(path[2:], "")]
		}
		*out = append(*out, ObjectPath{Kind: path[0], Path: path[2:]})
		for _, key := range other {
			if err := objectPaths(key, out); err != nil {
				return err
			}
		}
		return nil
	}
	for _, child := range childrenOf(e) {
		if err := objectPaths(child, out); err != nil {
			return err
		}
	}
	return nil
}

// objectPath returns the keys of an expression such as objects.Service[name].spec: "" for a key
// that is not constant. other are those keys.
func objectPath(e ast.Expr) (path []string, other []ast.Expr, ok bool) {
	switch operand, key, constant := keyOf(e); {
	case e.Kind() == ast.IdentKind:
		return nil, nil, e.AsIdent() == ObjectsVariable
	case operand == nil:
		return nil, nil, false
	default:
		path, other, ok = objectPath(operand)
		if key != nil && !constant.ok {
			other = append(other, key)
		}
		return append(path, constant.text), other, ok
	}
}
