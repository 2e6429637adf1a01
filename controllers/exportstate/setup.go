package exportstate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// Setup registers the controller of ExportStates with a manager.
type Setup struct {
	Reconciler            *reconcile.Reconciler[*v1alpha1.ExportState]
	DefaultServiceAccount string
}

// Names of the field indexes of ExportStates.
const (
	byStore   = ".spec.from"
	bySecret  = "secrets"
	byTarget  = ".spec.to.git"
	byAccount = ".spec.serviceAccountName"
)

var indexers = map[string]func(*v1alpha1.ExportState) []string{
	byStore: func(in *v1alpha1.ExportState) []string { return []string{statestore.NamespaceOf(in.Spec.From)} },
	byTarget: func(in *v1alpha1.ExportState) []string {
		if to := in.Spec.To.Git; to != nil {
			return []string{targetKey(in.Namespace, to)}
		}
		return nil
	},
	bySecret: func(in *v1alpha1.ExportState) []string {
		var out []string
		add := func(name string) { out = append(out, reconcile.IndexValue("Secret", in.Namespace, name)) }
		if to := in.Spec.To.Secret; to != nil {
			add(to.Name)
		}
		if to := in.Spec.To.Git; to != nil {
			for _, ref := range []*fluxmeta.LocalObjectReference{to.SecretRef, to.ProxySecretRef} {
				if ref != nil {
					add(ref.Name)
				}
			}
		}
		return out
	},
}

// Register adds the controller to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	all := maps.Clone(indexers)
	all[byAccount] = func(in *v1alpha1.ExportState) []string {
		return []string{reconcile.IndexValue("ServiceAccount", in.Namespace,
			cmp.Or(in.Spec.ServiceAccountName, s.DefaultServiceAccount))}
	}
	if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &v1alpha1.ExportState{}, all); err != nil {
		return err
	}
	err := s.Reconciler.NewBuilder(mgr).
		Watches(&v1alpha1.ExportState{}, handler.EnqueueRequestsFromMapFunc(s.forOthers)).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(s.forSecret)).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"),
			s.Reconciler.ByIndex(byAccount, "ServiceAccount")).
		WatchesMetadata(reconcile.PartialMetadata("", "ConfigMap"), handler.EnqueueRequestsFromMapFunc(s.forConfigMap)).
		Complete(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", v1alpha1.ExportStateKind, err)
	}
	return nil
}

// forOthers returns requests for the other exports to the same folder.
func (s *Setup) forOthers(ctx context.Context, o client.Object) []crreconcile.Request {
	to := o.(*v1alpha1.ExportState).Spec.To.Git
	if to == nil {
		return nil
	}
	return slices.DeleteFunc(s.Reconciler.Requests(ctx,
		client.MatchingFields{byTarget: targetKey(o.GetNamespace(), to)}), func(r crreconcile.Request) bool {
		return r.NamespacedName == client.ObjectKeyFromObject(o)
	})
}

// forSecret returns requests for the exports that write a Secret or use it to access a repository,
// and for those of the store that it is part of.
func (s *Setup) forSecret(ctx context.Context, o client.Object) []crreconcile.Request {
	out := s.Reconciler.Requests(ctx,
		client.MatchingFields{bySecret: reconcile.IndexValue("Secret", o.GetNamespace(), o.GetName())})
	if name := o.GetName(); name == state.StoreSecret || name == state.ExternalStoreSecret {
		out = append(out, s.Reconciler.Requests(ctx, client.MatchingFields{byStore: o.GetNamespace()})...)
	}
	return out
}

// forConfigMap returns requests for the exports of a store.
func (s *Setup) forConfigMap(ctx context.Context, o client.Object) []crreconcile.Request {
	if o.GetName() != state.StoreConfigMap {
		return nil
	}
	return s.Reconciler.Requests(ctx, client.MatchingFields{byStore: o.GetNamespace()})
}
