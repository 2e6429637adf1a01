package target

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// withSecret is the field by which KsctlClusters are found that have their kubeconfig in a Secret.
const withSecret = "status.kubeConfigSecret"

// Index has a cache find KsctlClusters by the Secret with their kubeconfig, for WithSecret.
func Index(ctx context.Context, ix client.FieldIndexer) error {
	err := ix.IndexField(ctx, &clusterv1.KsctlCluster{}, withSecret, func(o client.Object) []string {
		c := o.(*clusterv1.KsctlCluster)
		if c.Status.KubeConfigSecret == "" {
			return nil
		}
		return []string{reconcile.FieldValue("Secret", c.Namespace, c.Status.KubeConfigSecret)}
	})
	if err != nil {
		return fmt.Errorf("index of KsctlCluster: %w", err)
	}
	return nil
}

// WithSecret are the ids of the clusters that have their kubeconfig in a Secret.
func WithSecret(ctx context.Context, cache client.Reader, secret client.Object) []string {
	var out []string
	found := reconcile.Find(ctx, cache, &clusterv1.KsctlClusterList{}, nil,
		client.MatchingFields{withSecret: reconcile.FieldValue("Secret", secret.GetNamespace(), secret.GetName())})
	for _, r := range found {
		out = append(out, ClusterID(r.Namespace, r.Name))
	}
	return out
}

// Moved lets the changes of a KsctlCluster through that change how it is reached, or whether.
var Moved = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*clusterv1.KsctlCluster)
	after, is := e.ObjectNew.(*clusterv1.KsctlCluster)
	if !ok || !is {
		return true
	}
	return apimeta.IsStatusConditionTrue(before.Status.Conditions, appsv1.ReadyCondition) != apimeta.IsStatusConditionTrue(after.Status.Conditions, appsv1.ReadyCondition) ||
		before.Status.KubeConfigSecret != after.Status.KubeConfigSecret || before.Status.KubeConfigKey != after.Status.KubeConfigKey ||
		before.Generation != after.Generation || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}}
