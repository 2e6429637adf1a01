package install

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// In a namespace that is being deleted, the service account of an install is deleted before the
// install, and cannot be created again.

// isTerminating reports whether a namespace is being deleted.
func (s *Steps) isTerminating(ctx context.Context, namespace string) bool {
	ns := reconcile.PartialMetadata("", "Namespace")
	err := s.Client.Get(ctx, client.ObjectKey{Name: namespace}, ns, client.UnsafeDisableDeepCopy)
	return err == nil && ns.DeletionTimestamp != nil
}

// recordAccount records the account of a reconcile, for the case that its namespace is deleted.
func (s *Steps) recordAccount(ctx context.Context, o *owner) {
	in := o.req.Object
	name := s.serviceAccountName(in)
	account := reconcile.PartialMetadata("", "ServiceAccount")
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: name}, account, client.UnsafeDisableDeepCopy); err == nil {
		o.account = &appsv1.AccountReference{Name: name, UID: account.UID}
	}
}

// clientToRemove returns a client for the removal of an install. In a terminating namespace it acts as
// the account that created the objects, also if that is deleted: nobody can create another one with
// its name.
func (s *Steps) clientToRemove(ctx context.Context, in *appsv1.KsctlInstall, terminating bool) (*engine.Client, error) {
	c, err := s.clientFor(ctx, in)
	if err == nil || !terminating {
		return c, err
	}
	name := s.serviceAccountName(in)
	if in.Status.ServiceAccount != nil {
		name = in.Status.ServiceAccount.Name
	}
	return s.Targets.Local.ClientFor(&types.NamespacedName{Namespace: in.Namespace, Name: name})
}

// withTerminatingHint adds to an outcome how to end a removal in a terminating namespace whose
// bindings are already deleted.
func withTerminatingHint(in *appsv1.KsctlInstall, out reconcile.Outcome, denied bool) reconcile.Outcome {
	waiting, ok := out.(reconcile.Waiting)
	if !ok || !denied {
		return out
	}
	waiting.On += fmt.Sprintf("; the namespace is being deleted, and the permissions with it: delete these objects, or leave them with kubectl annotate ksctlinstall %s --namespace %s %s=%s",
		in.Name, in.Namespace, appsv1.AbandonAnnotation, in.UID)
	return waiting
}
