package remove

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Kind of the objects that are reconciled here.
const Kind = "KsctlRemove"

// Reasons of a KsctlRemove's conditions beside those of the skeleton.
const (
	// FormNotSupportedReason: this controller can't do the form that the spec has.
	FormNotSupportedReason = "FormNotSupported"
)

// Form does what one form of the spec asks for.
type Form = reconcile.Steps[*appsv1.KsctlRemove]

// Steps reconcile a KsctlRemove by the form of its spec.
type Steps struct {
	// ByInstall is for spec.installRef, BySource for spec.sourceRef; nil: not supported.
	ByInstall, BySource Form
}

var _ Form = (*Steps)(nil)

var errForm = errors.New("this controller can't do this form of a removal: it has neither spec.installRef nor a spec.sourceRef that is supported")

func (s *Steps) form(rm *appsv1.KsctlRemove) Form {
	if rm.Spec.InstallRef != nil {
		return s.ByInstall
	}
	return s.BySource
}

// Reconcile implements reconcile.Steps.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	if f := s.form(req.Object); f != nil {
		return f.Reconcile(ctx, req)
	}
	return reconcile.Stalled{Err: errForm, Reason: FormNotSupportedReason}
}

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	if f := s.form(req.Object); f != nil {
		return f.Finalize(ctx, req)
	}
	return reconcile.Done{Message: "nothing was begun"}
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) {
	for _, f := range []Form{s.ByInstall, s.BySource} {
		if f != nil {
			f.Forget(key)
		}
	}
}
