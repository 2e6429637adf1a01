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
	var children []ast.Expr
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
	for _, child := range children {
		out = append(out, readPaths(child, variable)...)
	}
	return out
}

// readPath returns the path of an expression such as cluster.labels.env.
func readPath(e ast.Expr, variable string) ([]string, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return nil, e.AsIdent() == variable
	case ast.SelectKind:
		path, ok := readPath(e.AsSelect().Operand(), variable)
		return append(path, e.AsSelect().FieldName()), ok
	case ast.CallKind:
		selects := []string{operators.Index, operators.OptIndex, operators.OptSelect}
		args := e.AsCall().Args()
		if !slices.Contains(selects, e.AsCall().FunctionName()) || len(args) != 2 || args[1].Kind() != ast.LiteralKind {
			return nil, false
		}
		key, isKey := args[1].AsLiteral().(types.String)
		path, ok := readPath(args[0], variable)
		return append(path, string(key)), ok && isKey
	}
	return nil, false
}
