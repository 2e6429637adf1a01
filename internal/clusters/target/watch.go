package target

import (
	"context"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// kubeConfigSecretIndex is the field index of KsctlClusters by the Secret with their kubeconfig.
const kubeConfigSecretIndex = "status.kubeConfigSecret"

// IndexFields adds the field index that ClustersWithSecret needs.
func IndexFields(ctx context.Context, ix client.FieldIndexer) error {
	return reconcile.AddIndexes(ctx, ix, &clusterv1.KsctlCluster{},
		map[string]func(*clusterv1.KsctlCluster) []string{
			kubeConfigSecretIndex: func(c *clusterv1.KsctlCluster) []string {
				if c.Status.KubeConfigSecret == "" {
					return nil
				}
				return []string{reconcile.IndexValue("Secret", c.Namespace, c.Status.KubeConfigSecret)}
			}})
}

// ClustersWithSecret returns the IDs of the KsctlClusters with their kubeconfig in a Secret.
func ClustersWithSecret(ctx context.Context, cache client.Reader, secret client.Object) []string {
	var out []string
	found := reconcile.RequestsFor(ctx, cache, &clusterv1.KsctlClusterList{}, nil,
		client.MatchingFields{kubeConfigSecretIndex: reconcile.IndexValue("Secret", secret.GetNamespace(),
			secret.GetName())})
	for _, r := range found {
		out = append(out, ClusterID(r.Namespace, r.Name))
	}
	return out
}

// EnqueueOwners enqueues the owners of a kind when their objects change, in the local cluster,
// which has the index, or in another one.
func (c *Clusters) EnqueueOwners(ctx context.Context, local *live.Index, kind string,
	queue workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
	c.SubscribeOwners(ctx, local, func(k plan.OwnerKey) {
		if k.Kind == kind {
			queue.Add(crreconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.Namespace, Name: k.Name}})
		}
	})
}

// SubscribeOwners calls a function with the owner of each object that changes, if the owner is of
// this installation. See EnqueueOwners.
func (c *Clusters) SubscribeOwners(ctx context.Context, local *live.Index, f func(plan.OwnerKey)) {
	changed := func(ownerKey string) {
		if k, ok := plan.ParseOwnerKey(ownerKey); ok && k.Installation == c.Installation {
			f(k)
		}
	}
	context.AfterFunc(ctx, local.Subscribe(changed))
	c.Subscribe(changed)
}

// AccessChanged is a predicate for changes of a KsctlCluster that affect its access: readiness,
// kubeconfig, generation and deletion.
var AccessChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*clusterv1.KsctlCluster)
	after, is := e.ObjectNew.(*clusterv1.KsctlCluster)
	if !ok || !is {
		return true
	}
	return apimeta.IsStatusConditionTrue(before.Status.Conditions,
		appsv1.ReadyCondition) != apimeta.IsStatusConditionTrue(after.Status.Conditions, appsv1.ReadyCondition) ||
		before.Status.KubeConfigSecret != after.Status.KubeConfigSecret ||
		before.Status.KubeConfigKey != after.Status.KubeConfigKey ||
		before.Generation != after.Generation || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}}
