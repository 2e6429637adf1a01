package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
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
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/state"
)

// Setup registers the controller of KsctlClusters with a manager.
type Setup struct {
	Reconciler            *reconcile.Reconciler[*clusterv1.KsctlCluster]
	Prober                *Prober
	DefaultServiceAccount string

	queue reconcile.Queue
}

// Names of the field indexes of KsctlClusters.
const (
	byImport   = ".spec.importRef"
	bySecret   = "secrets" // the Secrets that a cluster writes, or reads its kubeconfig from
	byAccount  = ".spec.serviceAccountName"
	withImport = "hasImportRef"
)

// indexers returns the functions that return the values of a KsctlCluster in each field index.
func (s *Setup) indexers() map[string]func(*clusterv1.KsctlCluster) []string {
	return map[string]func(*clusterv1.KsctlCluster) []string{
		byImport: func(c *clusterv1.KsctlCluster) []string {
			if c.Spec.ImportRef == nil {
				return nil
			}
			return []string{reconcile.IndexValue(v1alpha1.ImportStateKind, c.Namespace, c.Spec.ImportRef.Name)}
		},
		bySecret: func(c *clusterv1.KsctlCluster) []string {
			names := []types.NamespacedName{kubeconfigSecret(c)}
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
		byAccount: func(c *clusterv1.KsctlCluster) []string {
			return []string{reconcile.IndexValue("ServiceAccount", c.Namespace,
				cmp.Or(c.Spec.ServiceAccountName, s.DefaultServiceAccount))}
		},
	}
}

// Register adds the controller and its prober to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &clusterv1.KsctlCluster{}, s.indexers()); err != nil {
		return err
	}
	s.Prober.OnResult = s.enqueue
	b := s.Reconciler.NewBuilder(mgr)
	for _, kind := range []client.Object{&appsv1.KsctlInstall{}, &appsv1.KsctlRemove{}, &clusterv1.KsctlAutoScaler{}} {
		if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), kind,
			map[string]func(client.Object) []string{clusterIndex: indexCluster}); err != nil {
			return err
		}
		b.Watches(kind, handler.EnqueueRequestsFromMapFunc(clusterRequests), builder.WithPredicates(clusterChanged))
	}
	_, err := b.
		Watches(&v1alpha1.ImportState{}, s.Reconciler.ByIndex(byImport, v1alpha1.ImportStateKind),
			builder.WithPredicates(importChanged)).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), s.Reconciler.ByIndex(bySecret, "Secret")).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"),
			s.Reconciler.ByIndex(byAccount, "ServiceAccount")).
		WatchesMetadata(reconcile.PartialMetadata("", "ConfigMap"), handler.EnqueueRequestsFromMapFunc(s.forConfigMap)).
		WatchesRawSource(source.Func(s.queue.Start)).
		Build(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", clusterv1.KsctlClusterKind, err)
	}
	protection := &secretProtection{client: mgr.GetClient(), direct: mgr.GetAPIReader()}
	return errors.Join(protection.register(mgr, s.Reconciler.Options), mgr.Add(s.Prober))
}

// importChanged accepts updates of an ImportState that change its store, its agent, its clusters or
// the states that were written.
var importChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := &e.ObjectOld.(*v1alpha1.ImportState).Status, &e.ObjectNew.(*v1alpha1.ImportState).Status
	return before.Store != after.Store ||
		before.Agent != after.Agent ||
		!slices.EqualFunc(before.Clusters, after.Clusters, func(b, a v1alpha1.ImportedCluster) bool {
			return b.Key == a.Key && b.Action == a.Action && b.Ready == a.Ready && b.Written == a.Written
		})
}}

// forConfigMap returns requests for all imported clusters when a store changes: only the status of
// their ImportStates has the namespace of their store.
func (s *Setup) forConfigMap(ctx context.Context, o client.Object) []crreconcile.Request {
	if o.GetName() != state.StoreConfigMap {
		return nil
	}
	return s.Reconciler.Requests(ctx, client.MatchingFields{withImport: "true"})
}

// enqueue adds a request for a cluster whose probe has ended.
func (s *Setup) enqueue(key types.NamespacedName) {
	s.queue.Add(crreconcile.Request{NamespacedName: key})
}
