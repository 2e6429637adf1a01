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
// controller uses its own permissions only for its own kinds. It returns a StepError for an empty name
// and for a missing account, before it sends any request as that account.
func AccountClient(ctx context.Context, cache client.Reader, t *engine.Target, account types.NamespacedName) (*engine.Client, error) {
	if account.Name == "" {
		return nil, NewTerminalError(appsv1.ServiceAccountNotFoundReason, "no service account: set spec.serviceAccountName, or run the controller with --default-service-account")
	}
	if err := cache.Get(ctx, account, PartialMetadata("", "ServiceAccount")); apierrors.IsNotFound(err) {
		return nil, NewTransientError(appsv1.ServiceAccountNotFoundReason, "ServiceAccount %s does not exist: create it, or change spec.serviceAccountName", account)
	} else if err != nil {
		return nil, err
	}
	return t.ClientFor(&account)
}
