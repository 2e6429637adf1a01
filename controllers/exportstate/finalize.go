package exportstate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*v1alpha1.ExportState]) reconcile.Outcome {
	obj := req.Object
	if obj.Spec.DeletionPolicy != v1alpha1.DeleteState || obj.Status.Secret == "" {
		return reconcile.Done{Message: "what was exported stays"}
	}
	name := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Status.Secret}
	c, err := s.clientFor(ctx, obj)
	if err != nil {
		return s.withoutAccount(ctx, obj, name, err)
	}
	err = engine.DropSecret(ctx, c, name, ExportAnnotation, obj.Name)
	if apierrors.IsForbidden(err) { // its rights went first
		return s.withoutAccount(ctx, obj, name, err)
	}
	if err != nil {
		return reconcile.Retry{Err: orKeep(err)}
	}
	return reconcile.Done{Message: "what was exported is deleted"}
}

// withoutAccount lets an export go whose account is gone, if its Secret is, too, as when their
// namespace is deleted. Nothing is deleted with the controller's own rights.
func (s *Steps) withoutAccount(ctx context.Context, obj *v1alpha1.ExportState, name types.NamespacedName, cause error) reconcile.Outcome {
	c, err := s.Target.Client(nil)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	var have corev1.Secret
	found, err := engine.Read(ctx, c, secrets, name.Namespace, name.Name, &have)
	if err != nil {
		return reconcile.Retry{Err: fmt.Errorf("reading Secret %s: %w", name, err)}
	}
	if found && have.Annotations[ExportAnnotation] == obj.Name {
		return account.Outcome(orKeep(fmt.Errorf("%w: Secret %s is to be deleted with its rights", cause, name)), "")
	}
	return reconcile.Done{Message: "nothing is left"}
}

// orKeep says how to delete an export without what it has written.
func orKeep(err error) error {
	return fmt.Errorf("%w; or set spec.deletionPolicy to Keep, to leave what was exported", err)
}
