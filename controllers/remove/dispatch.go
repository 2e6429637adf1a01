package remove

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Form reconciles KsctlRemoves with one form of the spec.
type Form = reconcile.Steps[*appsv1.KsctlRemove]

// Steps dispatches KsctlRemoves by the form of their spec.
type Steps struct {
	// ByInstall handles spec.installRef, BySource spec.sourceRef.
	ByInstall *ByInstall
	BySource  Form
}

var _ Form = (*Steps)(nil)

func (s *Steps) form(rm *appsv1.KsctlRemove) Form {
	if rm.Spec.InstallRef != nil {
		return s.ByInstall
	}
	return s.BySource
}

// Reconcile implements reconcile.Steps.
func (s *Steps) Reconcile(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	return s.form(req.Object).Reconcile(ctx, req)
}

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlRemove]) reconcile.Outcome {
	return s.form(req.Object).Finalize(ctx, req)
}

// Forget implements reconcile.Steps.
func (s *Steps) Forget(key types.NamespacedName) {
	s.ByInstall.Forget(key)
	s.BySource.Forget(key)
}
