package expr

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// readPaths returns the paths of a variable that an expression reads. What is passed on or searched
// is read as a whole.
func readPaths(e ast.Expr, variable string) (out [][]string) {
	if path, ok := readPath(e, variable); ok {
		return [][]string{path}
	}
	for _, child := range childrenOf(e) {
		out = append(out, readPaths(child, variable)...)
	}
	return out
}

// childrenOf returns the expressions in an expression.
func childrenOf(e ast.Expr) (children []ast.Expr) {
	switch e.Kind() {
	case ast.CallKind:
		children = slices.Clone(e.AsCall().Args())
		if e.AsCall().IsMemberFunction() {
			children = append(children, e.AsCall().Target())
		}
	case ast.ListKind:
		children = e.AsList().Elements()
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			children = append(children, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			children = append(children, field.AsStructField().Value())
		}
	case ast.SelectKind:
		children = append(children, e.AsSelect().Operand())
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		children = append(children, c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	}
	return children
}

// readPath returns the path of an expression such as cluster.labels.env.
func readPath(e ast.Expr, variable string) ([]string, bool) {
	if e.Kind() == ast.IdentKind {
		return nil, e.AsIdent() == variable
	}
	operand, _, constant := keyOf(e)
	if operand == nil || !constant.ok {
		return nil, false
	}
	path, ok := readPath(operand, variable)
	return append(path, constant.text), ok
}

// constantKey is a key that is a text in an expression.
type constantKey struct {
	text string
	ok   bool
}

// keyOf returns the operand and the key of an expression such as a.b or a[b]; a nil operand for
// another one. key is nil for the name of a field.
func keyOf(e ast.Expr) (operand, key ast.Expr, constant constantKey) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand(), nil, constantKey{e.AsSelect().FieldName(), true}
	case ast.CallKind:
		selects := []string{operators.Index, operators.OptIndex, operators.OptSelect}
		args := e.AsCall().Args()
		if !slices.Contains(selects, e.AsCall().FunctionName()) || len(args) != 2 {
			return nil, nil, constantKey{}
		}
		if args[1].Kind() == ast.LiteralKind {
			text, ok := args[1].AsLiteral().(types.String)
			constant = constantKey{string(text), ok}
		}
		return args[0], args[1], constant
	}
	return nil, nil, constantKey{}
}
