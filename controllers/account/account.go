// Package account returns clients that impersonate the service account of a reconciled object. The
// controller uses its own permissions only for its own kinds.
package account

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// ErrNoServiceAccount reports an object without a service account and without a default.
var ErrNoServiceAccount = errors.New("no service account: set spec.serviceAccountName, or run the controller with --default-service-account")

// NotFoundError reports that a service account does not exist.
type NotFoundError struct{ Account types.NamespacedName }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("ServiceAccount %s does not exist: create it, or change spec.serviceAccountName", e.Account)
}

// Client returns a client of a target with the permissions of a service account. It fails with
// ErrNoServiceAccount for an empty name and with a NotFoundError for a missing account, before it
// sends any request as that account.
func Client(ctx context.Context, cache client.Reader, t *engine.Target, account types.NamespacedName) (*engine.Client, error) {
	if account.Name == "" {
		return nil, ErrNoServiceAccount
	}
	var meta metav1.PartialObjectMetadata
	meta.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"})
	if err := cache.Get(ctx, account, &meta); apierrors.IsNotFound(err) {
		return nil, &NotFoundError{Account: account}
	} else if err != nil {
		return nil, err
	}
	return t.ClientFor(&account)
}

// OutcomeOf returns the outcome of an error of Client.
func OutcomeOf(err error, revision string) reconcile.Outcome {
	var missing *NotFoundError
	if errors.As(err, &missing) {
		return reconcile.Retry{Err: err, Reason: reconcile.AccountNotFoundReason, Revision: revision}
	}
	if errors.Is(err, ErrNoServiceAccount) {
		return reconcile.Stalled{Err: err, Reason: reconcile.AccountNotFoundReason, Revision: revision}
	}
	return reconcile.Retry{Err: err, Revision: revision}
}
