package remove

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks/chart"
)

// Setup says what the controller watches.
type Setup struct {
	Reconciler *reconcile.Reconciler[*appsv1.KsctlRemove]
	// Index of this cluster calls back with the key of an owner whose objects changed, and
	// Clusters do for the others.
	Index interface {
		Subscribe(f func(ownerKey string)) (unsubscribe func())
	}
	Clusters *target.Clusters
	// Installation is the controller's --owner-id.
	Installation string
	Options      controller.Options
}

// Fields by which the KsctlRemoves of a namespace are found: those of an install, and
// those that read a Secret.
const (
	byInstall = "spec.installRef"
	bySecret  = "spec.charts"
)

// byCluster are the KsctlRemoves for a KsctlCluster, of any namespace.
const byCluster = "spec.clusterRef of a removal"

var fields = map[string]func(*appsv1.KsctlRemove) []string{
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
	for field, of := range fields {
		err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1.KsctlRemove{}, field, func(o client.Object) []string { return of(o.(*appsv1.KsctlRemove)) })
		if err != nil {
			return fmt.Errorf("index of %s: %w", Kind, err)
		}
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("ksctlremove").
		For(&appsv1.KsctlRemove{}, builder.WithPredicates(s.Reconciler.Wishes())).
		Watches(&appsv1.KsctlInstall{}, handler.EnqueueRequestsFromMapFunc(s.named(mgr.GetClient(), byInstall))).
		Watches(&clusterv1.KsctlCluster{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			return s.on(ctx, mgr.GetClient(), target.ClusterID(o.GetNamespace(), o.GetName()))
		}), builder.WithPredicates(target.Moved)).
		WatchesMetadata(reconcile.Metadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(s.secrets(mgr.GetClient()))).
		WatchesRawSource(source.Func(s.liveObjects)).
		WithOptions(s.Options).
		Complete(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", Kind, err)
	}
	return nil
}

// named finds the KsctlRemoves that name an object in a field.
func (s *Setup) named(reader client.Reader, field string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []crreconcile.Request {
		return reconcile.Find(ctx, reader, &appsv1.KsctlRemoveList{}, s.Reconciler.Selector, client.InNamespace(o.GetNamespace()), client.MatchingFields{field: o.GetName()})
	}
}

// on finds the KsctlRemoves for a KsctlCluster.
func (s *Setup) on(ctx context.Context, reader client.Reader, id string) []crreconcile.Request {
	return reconcile.Find(ctx, reader, &appsv1.KsctlRemoveList{}, s.Reconciler.Selector, client.MatchingFields{byCluster: id})
}

// secrets finds the KsctlRemoves that read a Secret, and those for a cluster whose kubeconfig it has.
func (s *Setup) secrets(reader client.Reader) handler.MapFunc {
	named := s.named(reader, bySecret)
	return func(ctx context.Context, o client.Object) []crreconcile.Request {
		out := named(ctx, o)
		for _, id := range target.WithSecret(ctx, reader, o) {
			out = append(out, s.on(ctx, reader, id)...)
		}
		return out
	}
}

// liveObjects wakes the KsctlRemove whose objects changed, or of whose kinds the
// index came to know all.
func (s *Setup) liveObjects(ctx context.Context, queue workqueue.TypedRateLimitingInterface[crreconcile.Request]) error {
	changed := func(ownerKey string) {
		k, ok := engine.ParseOwnerKey(ownerKey)
		if ok && k.Kind == Kind && k.Installation == s.Installation {
			queue.Add(crreconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.Namespace, Name: k.Name}})
		}
	}
	context.AfterFunc(ctx, s.Index.Subscribe(changed))
	s.Clusters.Subscribe(changed)
	return nil
}
