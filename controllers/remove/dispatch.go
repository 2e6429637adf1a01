package remove

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Reasons of a KsctlRemove's conditions, in addition to those of package reconcile.
const (
	// FormNotSupportedReason: this controller does not support the form of the spec.
	FormNotSupportedReason = "FormNotSupported"
)

// Form reconciles KsctlRemoves with one form of the spec.
type Form = reconcile.Steps[*appsv1.KsctlRemove]

// Steps dispatches KsctlRemoves by the form of their spec.
type Steps struct {
	// ByInstall handles spec.installRef, BySource spec.sourceRef; nil if the form is not supported.
	ByInstall, BySource Form
}

var _ Form = (*Steps)(nil)

var errUnsupportedForm = errors.New("this controller does not support this removal: set spec.installRef, or a supported spec.sourceRef")

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
	return reconcile.Stalled{Err: errUnsupportedForm, Reason: FormNotSupportedReason}
}

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	if f := s.form(req.Object); f != nil {
		return f.Finalize(ctx, req)
	}
	return reconcile.Done{Message: "the removal was not started"}
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) {
	for _, f := range []Form{s.ByInstall, s.BySource} {
		if f != nil {
			f.Forget(key)
		}
	}
}
