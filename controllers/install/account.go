package install

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// clientFor returns a client of the local cluster that impersonates the install's service account.
func (s *Steps) clientFor(ctx context.Context, in *appsv1.KsctlInstall) (*engine.Client, error) {
	return reconcile.AccountClient(ctx, s.Client, s.Targets.Local, types.NamespacedName{Namespace: in.Namespace, Name: s.serviceAccountName(in)})
}

// serviceAccountName returns the name of the service account that an install acts as. It is empty
// if neither the install nor the controller configures one.
func (s *Steps) serviceAccountName(in *appsv1.KsctlInstall) string {
	return cmp.Or(in.Spec.ServiceAccountName, s.DefaultServiceAccount)
}
