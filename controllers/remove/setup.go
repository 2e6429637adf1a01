package remove

import (
	"context"
	"fmt"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks/chart"
)

// Setup registers the controller of KsctlRemoves with a manager.
type Setup struct {
	Reconciler *reconcile.Reconciler[*appsv1.KsctlRemove]
	// Index is the index of the local cluster, Clusters has the other clusters.
	Index    *live.Index
	Clusters *target.Clusters
}

// Names of the field indexes of KsctlRemoves within a namespace: by install, and by Secrets that
// they read.
const (
	byInstall = ".spec.installRef"
	bySecret  = "secrets"
)

// byCluster indexes the KsctlRemoves of all namespaces by their KsctlCluster.
const byCluster = ".spec.clusterRef"

var indexers = map[string]func(*appsv1.KsctlRemove) []string{
	byInstall: func(rm *appsv1.KsctlRemove) []string {
		if ref := rm.Spec.InstallRef; ref != nil {
			return []string{ref.Name}
		}
		return nil
	},
	bySecret: func(rm *appsv1.KsctlRemove) (names []string) {
		for i := range rm.Spec.Charts {
			names = append(names, chart.SecretNames(&rm.Spec.Charts[i])...)
		}
		if ref := rm.Spec.KubeConfig; ref != nil {
			names = append(names, ref.SecretRef.Name)
		}
		if d := rm.Spec.Decryption; d != nil {
			names = append(names, d.SecretRef.Name)
		}
		return names
	},
	byCluster: func(rm *appsv1.KsctlRemove) []string {
		if rm.Spec.ClusterRef == nil {
			return nil
		}
		return []string{target.ID(rm.Namespace, &rm.Spec.TargetCluster)}
	},
}

// Register adds the controller to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &appsv1.KsctlRemove{}, indexers); err != nil {
		return err
	}
	err := s.Reconciler.NewBuilder(mgr).
		Watches(&appsv1.KsctlInstall{}, handler.EnqueueRequestsFromMapFunc(s.referencing(byInstall))).
		Watches(&clusterv1.KsctlCluster{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context,
			o client.Object) []crreconcile.Request {
			return s.forCluster(ctx, target.ClusterID(o.GetNamespace(), o.GetName()))
		}), builder.WithPredicates(target.AccessChanged)).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(s.forSecret)).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"),
			handler.EnqueueRequestsFromMapFunc(s.inNamespace), builder.WithPredicates(onlyCreated)).
		WatchesRawSource(source.Func(s.watchLiveObjects)).
		Complete(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", appsv1.KsctlRemoveKind, err)
	}
	return nil
}

// onlyCreated passes new objects: a KsctlRemove may lack its service account.
var onlyCreated = predicate.Funcs{
	UpdateFunc: func(event.UpdateEvent) bool { return false },
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func (s *Setup) inNamespace(ctx context.Context, o client.Object) []crreconcile.Request {
	return s.Reconciler.Requests(ctx, client.InNamespace(o.GetNamespace()))
}

// referencing returns a function that finds the KsctlRemoves that refer to an object, by a field
// index.
func (s *Setup) referencing(field string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []crreconcile.Request {
		return s.Reconciler.Requests(ctx, client.InNamespace(o.GetNamespace()),
			client.MatchingFields{field: o.GetName()})
	}
}

// forCluster returns requests for the KsctlRemoves on a cluster.
func (s *Setup) forCluster(ctx context.Context, id string) []crreconcile.Request {
	return s.Reconciler.Requests(ctx, client.MatchingFields{byCluster: id})
}

// forSecret returns requests for the KsctlRemoves that read a Secret, and for those on a cluster
// whose kubeconfig is in the Secret.
func (s *Setup) forSecret(ctx context.Context, o client.Object) []crreconcile.Request {
	out := s.referencing(bySecret)(ctx, o)
	for _, id := range target.ClustersWithSecret(ctx, s.Reconciler.Client, o) {
		out = append(out, s.forCluster(ctx, id)...)
	}
	return out
}

// watchLiveObjects enqueues a KsctlRemove when one of its objects changes, or when the index has
// synced its kinds.
func (s *Setup) watchLiveObjects(ctx context.Context,
	queue workqueue.TypedRateLimitingInterface[crreconcile.Request]) error {
	s.Clusters.EnqueueOwners(ctx, s.Index, appsv1.KsctlRemoveKind, queue)
	return nil
}
