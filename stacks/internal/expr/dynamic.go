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
	native := parsed.NativeRep()
	factory := ast.NewExprFactory()
	next := ast.MaxID(native)
	ast.PostOrderVisit(native.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Conditional {
			return
		}
		for _, branch := range e.AsCall().Args()[1:] {
			if branch.Kind() != ast.MapKind && branch.Kind() != ast.ListKind {
				continue
			}
			inner := factory.CopyExpr(branch)
			next++
			inner.RenumberIDs(func(old int64) int64 {
				next++
				// Keep the source positions for error messages.
				if at, ok := native.SourceInfo().GetOffsetRange(old); ok {
					native.SourceInfo().SetOffsetRange(next, at)
				}
				return next
			})
			branch.SetKindCase(factory.NewCall(next, "dyn", inner))
		}
	}))
}
