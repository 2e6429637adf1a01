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

// Setup registers the controller of KsctlClusters with a manager.
type Setup struct {
	Reconciler            *reconcile.Reconciler[*clusterv1.KsctlCluster]
	Prober                *Prober
	DefaultServiceAccount string
	Options               controller.Options
}

// Names of the field indexes of KsctlClusters.
const (
	byImport   = ".spec.importRef"
	bySecret   = "secrets"
	byAccount  = ".spec.serviceAccountName"
	withImport = "hasImportRef"
)

var indexers = map[string]func(*clusterv1.KsctlCluster) []string{
	byImport: func(c *clusterv1.KsctlCluster) []string {
		if c.Spec.ImportRef == nil {
			return nil
		}
		return []string{reconcile.IndexValue(v1alpha1.ImportStateKind, c.Namespace, c.Spec.ImportRef.Name)}
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
		for _, name := range append(names, recordedSecrets(c)...) {
			out = append(out, reconcile.IndexValue("Secret", name.Namespace, name.Name))
		}
		return out
	},
	withImport: func(c *clusterv1.KsctlCluster) []string {
		if c.Spec.ImportRef == nil {
			return nil
		}
		return []string{"true"}
	},
}

// Register adds the controller and its prober to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	all := maps.Clone(indexers)
	all[byAccount] = func(c *clusterv1.KsctlCluster) []string {
		return []string{reconcile.IndexValue("ServiceAccount", c.Namespace, cmp.Or(c.Spec.ServiceAccountName, s.DefaultServiceAccount))}
	}
	if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &clusterv1.KsctlCluster{}, all); err != nil {
		return err
	}
	for _, kind := range []client.Object{&appsv1.KsctlInstall{}, &appsv1.KsctlRemove{}, &clusterv1.KsctlAutoScaler{}} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, kind, clusterIndex, indexCluster); err != nil {
			return fmt.Errorf("index of %T: %w", kind, err)
		}
	}
	w := &requestMapper{reader: mgr.GetClient(), selector: s.Reconciler.Selector}
	s.Prober.OnResult = w.enqueue
	_, err := ctrl.NewControllerManagedBy(mgr).Named("ksctlcluster").
		For(&clusterv1.KsctlCluster{}, builder.WithPredicates(s.Reconciler.SpecChanged())).
		Watches(&appsv1.KsctlInstall{}, handler.EnqueueRequestsFromMapFunc(clusterRequests), builder.WithPredicates(clusterChanged)).
		Watches(&appsv1.KsctlRemove{}, handler.EnqueueRequestsFromMapFunc(clusterRequests), builder.WithPredicates(clusterChanged)).
		Watches(&clusterv1.KsctlAutoScaler{}, handler.EnqueueRequestsFromMapFunc(clusterRequests), builder.WithPredicates(clusterChanged)).
		Watches(&v1alpha1.ImportState{}, handler.EnqueueRequestsFromMapFunc(w.imports), builder.WithPredicates(importChanged)).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(w.secret)).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			return w.find(ctx, client.MatchingFields{byAccount: reconcile.IndexValue("ServiceAccount", o.GetNamespace(), o.GetName())})
		})).
		WatchesMetadata(reconcile.PartialMetadata("", "ConfigMap"), handler.EnqueueRequestsFromMapFunc(w.configMap)).
		WatchesRawSource(source.Func(w.queue.Start)).
		WithOptions(s.Options).
		Build(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", clusterv1.KsctlClusterKind, err)
	}
	return mgr.Add(s.Prober)
}

// importChanged accepts updates of an ImportState that change its store, its agent, its clusters or
// the states that were written.
var importChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
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

// requestMapper maps events to requests for the clusters that they affect.
type requestMapper struct {
	reader   client.Reader
	selector predicate.Predicate
	queue    reconcile.Queue
}

func (w *requestMapper) find(ctx context.Context, opts ...client.ListOption) []crreconcile.Request {
	return reconcile.RequestsFor(ctx, w.reader, &clusterv1.KsctlClusterList{}, w.selector, opts...)
}

func (w *requestMapper) imports(ctx context.Context, o client.Object) []crreconcile.Request {
	return w.find(ctx, client.MatchingFields{byImport: reconcile.IndexValue(v1alpha1.ImportStateKind, o.GetNamespace(), o.GetName())})
}

// secret returns requests for the clusters that write a Secret, or read their kubeconfig from it.
func (w *requestMapper) secret(ctx context.Context, o client.Object) []crreconcile.Request {
	return w.find(ctx, client.MatchingFields{bySecret: reconcile.IndexValue("Secret", o.GetNamespace(), o.GetName())})
}

// configMap returns requests for all imported clusters when a store changes: only the status of
// their ImportStates has the namespace of their store.
func (w *requestMapper) configMap(ctx context.Context, o client.Object) []crreconcile.Request {
	if o.GetName() != state.StoreConfigMap {
		return nil
	}
	return w.find(ctx, client.MatchingFields{withImport: "true"})
}

// enqueue adds a request for a cluster whose probe has ended.
func (w *requestMapper) enqueue(key types.NamespacedName) {
	w.queue.Add(crreconcile.Request{NamespacedName: key})
}
