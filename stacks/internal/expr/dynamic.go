package expr

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// loosen makes dynamic the literals that a condition chooses between. CEL wants both
// of one type, and overrides with different keys are not: {'values': {}} and {'images': []}.
func loosen(parsed *cel.Ast) {
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
				// Errors still find their place in the source.
				if at, ok := native.SourceInfo().GetOffsetRange(old); ok {
					native.SourceInfo().SetOffsetRange(next, at)
				}
				return next
			})
			branch.SetKindCase(factory.NewCall(next, "dyn", inner))
		}
	}))
}
