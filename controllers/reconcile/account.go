package reconcile

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
)

// AccountClient returns a client of a target with the permissions of a service account: the
// controller uses its own permissions only for its own kinds. It returns a StepError for an empty
// name and for a missing account, before it sends any request as that account.
func AccountClient(ctx context.Context, cache client.Reader, t *engine.Target,
	account types.NamespacedName) (*engine.Client, error) {
	if _, err := findAccount(ctx, cache, account); err != nil {
		return nil, err
	}
	return t.ClientFor(&account)
}

// RecordedAccountClient returns AccountClient for the account of an object, and records the account
// in the status of the object. While the object and its namespace are being deleted, the recorded
// account counts as there: it is deleted before the object, and nobody can create another one with
// its name.
func RecordedAccountClient(ctx context.Context, cache client.Reader, t *engine.Target, o Object,
	name string) (*engine.Client, error) {
	account := types.NamespacedName{Namespace: o.GetNamespace(), Name: name}
	uid, err := findAccount(ctx, cache, account)
	status := o.CommonStatus()
	switch {
	case err == nil:
		if status.ServiceAccount == nil || status.ServiceAccount.UID != uid {
			status.ServiceAccount = &appsv1.AccountReference{Name: name, UID: uid}
		}
		return t.ClientFor(&account)
	case name == "" || !IsDeletedWithNamespace(ctx, cache, o):
		return nil, err
	case status.ServiceAccount != nil: // else it was reconciled only by a version that did not record the account
		account.Name = status.ServiceAccount.Name
	}
	return t.ClientFor(&account)
}

// findAccount returns the UID of a service account, or a StepError if its name is empty or it does
// not exist.
func findAccount(ctx context.Context, cache client.Reader, account types.NamespacedName) (types.UID, error) {
	if account.Name == "" {
		return "", NewTerminalError(appsv1.ServiceAccountNotFoundReason,
			"no service account: set spec.serviceAccountName, or run the controller with --default-service-account")
	}
	found := PartialMetadata("", "ServiceAccount")
	if err := cache.Get(ctx, account, found, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return "", NewTransientError(appsv1.ServiceAccountNotFoundReason,
			"ServiceAccount %s does not exist: create it, or change spec.serviceAccountName", account)
	} else if err != nil {
		return "", err
	}
	return found.UID, nil
}

// IsDeletedWithNamespace reports whether an object is being deleted, and its namespace, too.
func IsDeletedWithNamespace(ctx context.Context, cache client.Reader, o client.Object) bool {
	return o.GetDeletionTimestamp() != nil && IsNamespaceTerminating(ctx, cache, o.GetNamespace())
}

// IsNamespaceTerminating reports whether a namespace is being deleted.
func IsNamespaceTerminating(ctx context.Context, cache client.Reader, name string) bool {
	ns := PartialMetadata("", "Namespace")
	err := cache.Get(ctx, client.ObjectKey{Name: name}, ns, client.UnsafeDisableDeepCopy)
	return err == nil && ns.DeletionTimestamp != nil
}
