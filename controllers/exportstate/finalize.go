package exportstate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Finalize implements reconcile.Steps.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*v1alpha1.ExportState]) reconcile.Outcome {
	obj := req.Object
	if obj.Spec.DeletionPolicy != v1alpha1.DeleteState || obj.Status.Secret == "" {
		return reconcile.Done{Message: "the exported files stay"}
	}
	if reconcile.IsDeletedWithNamespace(ctx, s.Client, obj) {
		return reconcile.Done{Message: "the Secret with the exported files is deleted with its namespace"}
	}
	name := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Status.Secret}
	c, err := s.clientFor(ctx, obj)
	if err != nil {
		return s.finalizeWithoutAccount(ctx, obj, name, err)
	}
	err = engine.DeleteOwnedSecret(ctx, c, name, ExportAnnotation, obj.Name)
	if apierrors.IsForbidden(err) { // the role binding was deleted before the export
		return s.finalizeWithoutAccount(ctx, obj, name, err)
	}
	if err != nil {
		return reconcile.Retry{Err: withKeepHint(err)}
	}
	return reconcile.Done{Message: "the Secret with the exported files is deleted"}
}

// finalizeWithoutAccount finishes the deletion of an export without usable account if its Secret
// does not exist any more, as when their namespace is deleted. It deletes nothing: the controller's
// own permissions are not used for that.
func (s *Steps) finalizeWithoutAccount(ctx context.Context, obj *v1alpha1.ExportState, name types.NamespacedName,
	cause error) reconcile.Outcome {
	c, err := s.Target.ClientFor(nil)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	var current corev1.Secret
	found, err := engine.GetInto(ctx, c, secretGVR, name.Namespace, name.Name, &current)
	if err != nil {
		return reconcile.Retry{Err: fmt.Errorf("reading Secret %s: %w", name, err)}
	}
	if found && current.Annotations[ExportAnnotation] == obj.Name {
		return reconcile.OutcomeOf(
			withKeepHint(fmt.Errorf("%w: deleting Secret %s needs the permissions of the account", cause, name)), "")
	}
	return reconcile.Done{Message: "nothing is left"}
}

// withKeepHint adds how to delete an export without its Secret.
func withKeepHint(err error) error {
	return fmt.Errorf("%w; to keep the exported files, set spec.deletionPolicy to Keep", err)
}
