// Package account finds the service account whose rights an object of ours acts
// with. The controller's own are for its own kinds: they are never lent.
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

// ErrNone says that nobody said with whose rights to act.
var ErrNone = errors.New("no service account: set spec.serviceAccountName, or run the controller with --default-service-account")

// NotFoundError says that an account does not exist.
type NotFoundError struct{ Account types.NamespacedName }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("ServiceAccount %s does not exist: create it, or change spec.serviceAccountName", e.Account)
}

// Client returns a client of a target with the rights of an account. A missing
// account is an error before any request is made as it; so is one without a name.
func Client(ctx context.Context, cache client.Reader, t *engine.Target, account types.NamespacedName) (*engine.Client, error) {
	if account.Name == "" {
		return nil, ErrNone
	}
	var meta metav1.PartialObjectMetadata
	meta.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"})
	if err := cache.Get(ctx, account, &meta); apierrors.IsNotFound(err) {
		return nil, &NotFoundError{Account: account}
	} else if err != nil {
		return nil, err
	}
	return t.Client(&account)
}

// Outcome of an error of Client.
func Outcome(err error, revision string) reconcile.Outcome {
	var missing *NotFoundError
	if errors.As(err, &missing) {
		return reconcile.Retry{Err: err, Reason: reconcile.AccountNotFoundReason, Revision: revision}
	}
	if errors.Is(err, ErrNone) {
		return reconcile.Stalled{Err: err, Reason: reconcile.AccountNotFoundReason, Revision: revision}
	}
	return reconcile.Retry{Err: err, Revision: revision}
}
