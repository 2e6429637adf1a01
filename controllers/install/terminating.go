package install

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// In a namespace that is being deleted, the service account of an install is deleted before the
// install, and cannot be created again.

// recordAccount records the account of a reconcile, for the case that its namespace is deleted.
func (s *Steps) recordAccount(ctx context.Context, o *owner) {
	in := o.req.Object
	name := s.serviceAccountName(in)
	account := reconcile.PartialMetadata("", "ServiceAccount")
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: name}, account,
		client.UnsafeDisableDeepCopy); err == nil {
		o.account = &appsv1.AccountReference{Name: name, UID: account.UID}
	}
}

// withTerminatingHint adds to an outcome how to end a removal in a terminating namespace whose
// bindings are already deleted.
func withTerminatingHint(in *appsv1.KsctlInstall, out reconcile.Outcome) reconcile.Outcome {
	waiting, ok := out.(reconcile.Waiting)
	if !ok {
		return out
	}
	waiting.On += fmt.Sprintf("; the namespace is being deleted, and the permissions with it: delete these objects, "+
		"or leave them with kubectl annotate ksctlinstall %s --namespace %s %s=%s",
		in.Name, in.Namespace, appsv1.AbandonAnnotation, in.UID)
	return waiting
}
