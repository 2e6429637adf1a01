package expr

import (
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Variables of the parameters of the stack, and of those of the component.
const (
	stackVariable  = "stack"
	paramsVariable = "params"
)

// Scope has the JSON schemas of the parameters that expressions read. Every branch of an expression
// is checked against them.
type Scope struct {
	// Stack are the parameters of the stack, and Params those of the component; nil if there are
	// none.
	Stack, Params map[string]any
}

// Variables are the values that expressions read.
type Variables struct {
	Stack, Params map[string]any
	// Cluster has the facts of the KsctlCluster of the target; nil without one.
	Cluster map[string]any
	// Version of the component; of the stack where the component has none.
	Version string
	// Name and Namespace of the install.
	Name, Namespace string
}

// options are the types of the variables.
func (s Scope) options() ([]cel.EnvOption, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	t := &schemaTypes{Registry: registry, objects: map[string]map[string]*types.Type{}}
	return []cel.EnvOption{
		cel.CustomTypeProvider(t), cel.CustomTypeAdapter(registry),
		cel.Variable("version", cel.StringType), cel.Variable("name", cel.StringType),
		cel.Variable(namespaceVariable, cel.StringType),
		cel.Variable(stackVariable, t.root(stackVariable, s.Stack)),
		cel.Variable(paramsVariable, t.root(paramsVariable, s.Params)),
		cel.Variable(clusterVariable, t.object(clusterVariable, clusterSchema)),
	}, nil
}

// schemaTypes are the CEL types of JSON schemas. A closed object has a type of its own, so that the
// check reports a field that its schema does not list. At run time it is a map.
type schemaTypes struct {
	*types.Registry
	// objects has the types of the fields of each object, by the name of its type.
	objects map[string]map[string]*types.Type
}

// FindStructType implements types.Provider.
func (t *schemaTypes) FindStructType(name string) (*types.Type, bool) {
	if _, ok := t.objects[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return t.Registry.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (t *schemaTypes) FindStructFieldNames(name string) ([]string, bool) {
	if fields, ok := t.objects[name]; ok {
		return slices.Sorted(maps.Keys(fields)), true
	}
	return t.Registry.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider. A field without functions is read as the key of a
// map.
func (t *schemaTypes) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	fields, ok := t.objects[name]
	if !ok {
		return t.Registry.FindStructFieldType(name, field)
	}
	fieldType, ok := fields[field]
	return &types.FieldType{Type: fieldType}, ok
}

// root returns the type of the parameters, with fields of any name where their schema allows more
// than it lists.
func (t *schemaTypes) root(name string, schema map[string]any) *types.Type {
	more, open := schema["additionalProperties"]
	for _, keyword := range []string{"$ref", "$dynamicRef", "allOf", "patternProperties", "unevaluatedProperties"} {
		_, other := schema[keyword]
		if other || open && more != false {
			return types.NewMapType(types.StringType, types.DynType)
		}
	}
	return t.object(name, schema)
}

// object returns the type of the object at a path.
func (t *schemaTypes) object(path string, schema map[string]any) *types.Type {
	fields := map[string]*types.Type{}
	properties, _ := schema["properties"].(map[string]any)
	for name := range properties {
		property, _ := properties[name].(map[string]any)
		fields[name] = t.typeOf(path+"."+name, property)
	}
	name := "object " + path // no name that an expression can have
	t.objects[name] = fields
	return types.NewObjectType(name)
}

// severalTypes are the keywords of schemas that may allow values of several types.
var severalTypes = []string{"$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if", "patternProperties",
	"unevaluatedProperties"}

// typeOf returns the type of a schema: dyn where it may allow several.
func (t *schemaTypes) typeOf(path string, schema map[string]any) *types.Type {
	for _, keyword := range severalTypes {
		if _, ok := schema[keyword]; ok {
			return types.DynType
		}
	}
	switch schema["type"] {
	case "string":
		return types.StringType
	case "boolean":
		return types.BoolType
	case "integer":
		return types.IntType
	case "array":
		items, _ := schema["items"].(map[string]any)
		return types.NewListType(t.typeOf(path+"[]", items))
	case "object":
		more, open := schema["additionalProperties"]
		_, listed := schema["properties"]
		if listed && (!open || more == false) {
			return t.object(path, schema)
		}
		if values, ok := more.(map[string]any); ok && !listed {
			return types.NewMapType(types.StringType, t.typeOf(path+"[]", values))
		}
		return types.NewMapType(types.StringType, types.DynType)
	}
	return types.DynType // also a number: 1 is an integer, and 1.5 is not
}

// selectConstantKeys makes stack['a-b'] the field a-b of stack: an object with a type of its own
// has no keys.
func selectConstantKeys(parsed *cel.Ast) {
	factory := ast.NewExprFactory()
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 || e.AsCall().Args()[1].Kind() != ast.LiteralKind {
			return
		}
		args := e.AsCall().Args()
		key, isString := args[1].AsLiteral().(types.String)
		switch function := e.AsCall().FunctionName(); {
		case function == operators.Index && isString:
			e.SetKindCase(factory.NewSelect(e.ID(), args[0], string(key)))
		case function == operators.OptIndex && isString:
			e.SetKindCase(factory.NewCall(e.ID(), operators.OptSelect, args...))
		}
	}))
}
