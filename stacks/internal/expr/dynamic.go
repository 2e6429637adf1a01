package expr

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// makeBranchesDynamic gives map and list literals in the branches of a conditional the type dyn.
// CEL requires both branches to have the same type, but overrides with different keys do not:
// {'values': {}} and {'images': []}.
func makeBranchesDynamic(parsed *cel.Ast) {
	w := newWrapper(parsed.NativeRep())
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Conditional {
			return
		}
		for _, branch := range e.AsCall().Args()[1:] {
			if branch.Kind() == ast.MapKind || branch.Kind() == ast.ListKind {
				w.wrap(branch, "dyn")
			}
		}
	}))
}

// wrapper makes expressions of one tree the argument of a function.
type wrapper struct {
	tree    *ast.AST
	factory ast.ExprFactory
	next    int64
}

func newWrapper(tree *ast.AST) *wrapper {
	return &wrapper{tree: tree, factory: ast.NewExprFactory(), next: ast.MaxID(tree)}
}

// wrap replaces an expression by the call of a function with it.
func (w *wrapper) wrap(e ast.Expr, function string) {
	inner := w.factory.CopyExpr(e)
	w.next++
	call := w.next
	inner.RenumberIDs(func(old int64) int64 {
		w.next++
		// Keep the source positions for error messages.
		if at, ok := w.tree.SourceInfo().GetOffsetRange(old); ok {
			w.tree.SourceInfo().SetOffsetRange(w.next, at)
		}
		return w.next
	})
	e.SetKindCase(w.factory.NewCall(call, function, inner))
}
