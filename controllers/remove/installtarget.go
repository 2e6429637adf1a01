package remove

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// installTarget is the cluster of an install, as used by a KsctlRemove.
type installTarget struct {
	key    plan.OwnerKey
	target *engine.Target
	// client has the permissions of the install's account; nil if the account does not exist: the
	// rehearsal then omits everything that needs a request.
	client *engine.Client
}

// findTarget returns the cluster of an install.
func (b *ByInstall) findTarget(ctx context.Context, rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall,
	requested bool) (*installTarget, error) {
	key := plan.OwnerKey{Installation: b.Installation, Cluster: target.InstallCluster(in), Kind: appsv1.KsctlRemoveKind,
		Namespace: rm.Namespace, Name: rm.Name}
	name := client.ObjectKeyFromObject(rm)
	load := func() (*installTarget, error) { return &installTarget{key: key}, nil }
	a, err := b.installTargets.Get(name, rm.UID, load)
	if err == nil && a.key != key { // the install has moved to another cluster
		b.Forget(name)
		a, err = b.installTargets.Get(name, rm.UID, load)
	}
	if err != nil {
		return nil, err
	}
	account := cmp.Or(in.Spec.ServiceAccountName, b.DefaultServiceAccount)
	localClient, err := reconcile.AccountClient(ctx, b.Client, b.Targets.Local,
		types.NamespacedName{Namespace: in.Namespace, Name: account})
	if err != nil && key.Cluster != plan.LocalCluster {
		return nil, err // the account is needed to read the kubeconfig
	}
	located, err := b.Targets.Resolve(ctx, target.User{Key: key, Spec: &in.Spec.TargetCluster, Account: account,
		LocalClient: localClient,
		UID:         in.Status.ClusterUID, Requested: requested})
	if err != nil {
		return nil, err
	}
	a.target, a.client = located.Target, located.Client
	return a, nil
}

// Forget implements reconcile.Steps. It drops the in-memory state of a KsctlRemove.
func (b *ByInstall) Forget(rm types.NamespacedName) {
	if a, kept := b.installTargets.Drop(rm); kept {
		b.Engine.Forget(a.target, a.key)
		b.Targets.Forget(a.key)
	}
}
