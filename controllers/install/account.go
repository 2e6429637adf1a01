package install

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
)

// clientFor returns a client of this cluster with the rights of the install's account.
func (s *Steps) clientFor(ctx context.Context, in *appsv1.KsctlInstall) (*engine.Client, error) {
	return account.Client(ctx, s.Client, s.Targets.Local, types.NamespacedName{Namespace: in.Namespace, Name: s.account(in)})
}

// account is the name of the account that an install acts as; empty when nobody
// named one.
func (s *Steps) account(in *appsv1.KsctlInstall) string {
	if in.Spec.ServiceAccountName != "" {
		return in.Spec.ServiceAccountName
	}
	return s.DefaultServiceAccount
}
