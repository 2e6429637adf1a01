package remove

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// aimed is the cluster that an install is on, as a KsctlRemove looks at it.
type aimed struct {
	key    engine.OwnerKey
	target *engine.Target
	// client has the rights of the install's account; nil when there is none: what only a
	// request can tell is then not foreseen.
	client *engine.Client
}

// aim finds the cluster that an install is on.
func (b *ByInstall) aim(ctx context.Context, rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, requested bool) (*aimed, error) {
	key := engine.OwnerKey{Installation: b.Installation, Cluster: target.OfInstall(in), Kind: Kind, Namespace: rm.Namespace, Name: rm.Name}
	name := client.ObjectKeyFromObject(rm)
	a, err := b.aims.Get(name, rm.UID, func() (*aimed, error) { return &aimed{key: key}, nil })
	if err != nil {
		return nil, err
	}
	if a.key != key { // the install went to another cluster
		b.forget(name)
		if a, err = b.aims.Get(name, rm.UID, func() (*aimed, error) { return &aimed{key: key}, nil }); err != nil {
			return nil, err
		}
	}
	account, here, err := b.here(ctx, in)
	if err != nil && key.Cluster != engine.LocalCluster {
		return nil, err // who is there to read the kubeconfig?
	}
	at, err := b.Targets.Of(ctx, target.User{Key: key, Spec: &in.Spec.TargetCluster, Account: account, Here: here,
		UID: in.Status.ClusterUID, Requested: requested})
	if err != nil {
		return nil, err
	}
	a.target, a.client = at.Target, at.Client
	return a, nil
}

// here is the install's account, and a client of this cluster with its rights; nil when there
// is none.
func (b *ByInstall) here(ctx context.Context, in *appsv1.KsctlInstall) (string, *engine.Client, error) {
	name := cmp.Or(in.Spec.ServiceAccountName, b.DefaultServiceAccount)
	c, err := account.Client(ctx, b.Client, b.Targets.Local, types.NamespacedName{Namespace: in.Namespace, Name: name})
	if err != nil {
		return name, nil, err
	}
	return name, c, nil
}

// forget drops what is kept of a KsctlRemove.
func (b *ByInstall) forget(rm types.NamespacedName) {
	if a, kept := b.aims.Drop(rm); kept {
		b.Engine.Forget(a.target, a.key)
		b.Targets.Forget(a.key)
	}
}
