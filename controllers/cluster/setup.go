package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/state"
)

// Setup says what the controller watches.
type Setup struct {
	Reconciler            *reconcile.Reconciler[*clusterv1.KsctlCluster]
	Prober                *Prober
	DefaultServiceAccount string
	Options               controller.Options
}

// Fields by which clusters are found.
const (
	byImport  = "spec.importRef"
	bySecret  = "Secrets of a cluster"
	byAccount = "spec.serviceAccountName of a cluster"
	imported  = "spec.importRef is set"
)

var fields = map[string]func(*clusterv1.KsctlCluster) []string{
	byImport: func(c *clusterv1.KsctlCluster) []string {
		if c.Spec.ImportRef == nil {
			return nil
		}
		return []string{reconcile.FieldValue("ImportState", c.Namespace, c.Spec.ImportRef.Name)}
	},
	bySecret: func(c *clusterv1.KsctlCluster) []string {
		names := []types.NamespacedName{{Namespace: c.Namespace, Name: c.Name + secretSuffix}}
		if c.Spec.KubeConfigRef != nil {
			names[0].Name = c.Spec.KubeConfigRef.Name
		}
		if argo := c.Spec.ArgoCD; argo != nil {
			names = append(names, argoCDSecret(c, argo.Namespace))
		}
		var out []string
		for _, name := range append(names, secretsOf(c)...) {
			out = append(out, reconcile.FieldValue("Secret", name.Namespace, name.Name))
		}
		return out
	},
	imported: func(c *clusterv1.KsctlCluster) []string {
		if c.Spec.ImportRef == nil {
			return nil
		}
		return []string{"true"}
	},
}

// Register adds the controller, and what asks clusters, to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	all := maps.Clone(fields)
	all[byAccount] = func(c *clusterv1.KsctlCluster) []string {
		return []string{reconcile.FieldValue("ServiceAccount", c.Namespace, cmp.Or(c.Spec.ServiceAccountName, s.DefaultServiceAccount))}
	}
	for field, of := range all {
		err := mgr.GetFieldIndexer().IndexField(ctx, &clusterv1.KsctlCluster{}, field, func(o client.Object) []string {
			return of(o.(*clusterv1.KsctlCluster))
		})
		if err != nil {
			return fmt.Errorf("index of %s: %w", Kind, err)
		}
	}
	for _, kind := range []client.Object{&appsv1.KsctlInstall{}, &appsv1.KsctlRemove{}, &clusterv1.KsctlAutoScaler{}} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, kind, onCluster, places); err != nil {
			return fmt.Errorf("index of %T: %w", kind, err)
		}
	}
	w := &wakes{reader: mgr.GetClient(), selector: s.Reconciler.Selector}
	s.Prober.Wake = w.one
	_, err := ctrl.NewControllerManagedBy(mgr).Named("ksctlcluster").
		For(&clusterv1.KsctlCluster{}, builder.WithPredicates(s.Reconciler.Wishes())).
		Watches(&appsv1.KsctlInstall{}, handler.EnqueueRequestsFromMapFunc(usedBy), builder.WithPredicates(placed)).
		Watches(&appsv1.KsctlRemove{}, handler.EnqueueRequestsFromMapFunc(usedBy), builder.WithPredicates(placed)).
		Watches(&clusterv1.KsctlAutoScaler{}, handler.EnqueueRequestsFromMapFunc(usedBy), builder.WithPredicates(placed)).
		Watches(&v1alpha1.ImportState{}, handler.EnqueueRequestsFromMapFunc(w.imports), builder.WithPredicates(imports)).
		WatchesMetadata(reconcile.Metadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(w.secret)).
		WatchesMetadata(reconcile.Metadata("", "ServiceAccount"), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			return w.find(ctx, client.MatchingFields{byAccount: reconcile.FieldValue("ServiceAccount", o.GetNamespace(), o.GetName())})
		})).
		WatchesMetadata(reconcile.Metadata("", "ConfigMap"), handler.EnqueueRequestsFromMapFunc(w.configMap)).
		WatchesRawSource(source.Func(w.queue.Start)).
		WithOptions(s.Options).
		Build(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", Kind, err)
	}
	return mgr.Add(s.Prober)
}

// imports lets changes of an import through that change which clusters it has, where, and
// which states.
var imports = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.ImportState)
	after, is := e.ObjectNew.(*v1alpha1.ImportState)
	if !ok || !is || before.Status.Store != after.Status.Store || before.Status.Agent != after.Status.Agent || len(before.Status.Clusters) != len(after.Status.Clusters) {
		return true
	}
	for i := range before.Status.Clusters {
		b, a := &before.Status.Clusters[i], &after.Status.Clusters[i]
		if b.Key != a.Key || b.Action != a.Action || b.Ready != a.Ready || b.Written != a.Written {
			return true
		}
	}
	return false
}}

// wakes finds the clusters that an event concerns.
type wakes struct {
	reader   client.Reader
	selector predicate.Predicate
	queue    reconcile.Queue
}

func (w *wakes) find(ctx context.Context, opts ...client.ListOption) []crreconcile.Request {
	return reconcile.Find(ctx, w.reader, &clusterv1.KsctlClusterList{}, w.selector, opts...)
}

func (w *wakes) imports(ctx context.Context, o client.Object) []crreconcile.Request {
	return w.find(ctx, client.MatchingFields{byImport: reconcile.FieldValue("ImportState", o.GetNamespace(), o.GetName())})
}

// secret wakes the clusters that write a Secret, or whose kubeconfig it has.
func (w *wakes) secret(ctx context.Context, o client.Object) []crreconcile.Request {
	return w.find(ctx, client.MatchingFields{bySecret: reconcile.FieldValue("Secret", o.GetNamespace(), o.GetName())})
}

// configMap wakes the clusters that were imported: which store is theirs their imports say.
func (w *wakes) configMap(ctx context.Context, o client.Object) []crreconcile.Request {
	if o.GetName() != state.StoreConfigMap {
		return nil
	}
	return w.find(ctx, client.MatchingFields{imported: "true"})
}

// one wakes a cluster that has answered.
func (w *wakes) one(key types.NamespacedName) {
	w.queue.Add(crreconcile.Request{NamespacedName: key})
}
