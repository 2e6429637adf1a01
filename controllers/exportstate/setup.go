package exportstate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// Setup says what the controller watches.
type Setup struct {
	Reconciler            *reconcile.Reconciler[*v1alpha1.ExportState]
	DefaultServiceAccount string
	Options               controller.Options
}

// Fields by which exports are found.
const (
	byStore   = "spec.from of an export"
	bySecret  = "Secrets of an export"
	byMeeting = "spec.to.git of an export"
	byAccount = "spec.serviceAccountName of an export"
)

var fields = map[string]func(*v1alpha1.ExportState) []string{
	byStore: func(in *v1alpha1.ExportState) []string { return []string{statestore.NamespaceOf(in.Spec.From)} },
	byMeeting: func(in *v1alpha1.ExportState) []string {
		if to := in.Spec.To.Git; to != nil {
			return []string{meeting(in.Namespace, to)}
		}
		return nil
	},
	bySecret: func(in *v1alpha1.ExportState) []string {
		var out []string
		add := func(name string) { out = append(out, reconcile.FieldValue("Secret", in.Namespace, name)) }
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
	all := maps.Clone(fields)
	all[byAccount] = func(in *v1alpha1.ExportState) []string {
		return []string{reconcile.FieldValue("ServiceAccount", in.Namespace, cmp.Or(in.Spec.ServiceAccountName, s.DefaultServiceAccount))}
	}
	for field, of := range all {
		err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.ExportState{}, field, func(o client.Object) []string {
			return of(o.(*v1alpha1.ExportState))
		})
		if err != nil {
			return fmt.Errorf("index of %s: %w", Kind, err)
		}
	}
	w := &wakes{reader: mgr.GetClient(), selector: s.Reconciler.Selector}
	err := ctrl.NewControllerManagedBy(mgr).Named("exportstate").
		For(&v1alpha1.ExportState{}, builder.WithPredicates(s.Reconciler.Wishes())).
		Watches(&v1alpha1.ExportState{}, handler.EnqueueRequestsFromMapFunc(w.others)).
		WatchesMetadata(reconcile.Metadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(w.secret)).
		WatchesMetadata(reconcile.Metadata("", "ServiceAccount"), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			return w.find(ctx, client.MatchingFields{byAccount: reconcile.FieldValue("ServiceAccount", o.GetNamespace(), o.GetName())})
		})).
		WatchesMetadata(reconcile.Metadata("", "ConfigMap"), handler.EnqueueRequestsFromMapFunc(w.configMap)).
		WithOptions(s.Options).
		Complete(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", Kind, err)
	}
	return nil
}

// wakes finds the exports that an event concerns.
type wakes struct {
	reader   client.Reader
	selector predicate.Predicate
}

func (w *wakes) find(ctx context.Context, opts ...client.ListOption) []crreconcile.Request {
	return reconcile.Find(ctx, w.reader, &v1alpha1.ExportStateList{}, w.selector, opts...)
}

// others wakes the exports to the same folder.
func (w *wakes) others(ctx context.Context, o client.Object) []crreconcile.Request {
	to := o.(*v1alpha1.ExportState).Spec.To.Git
	if to == nil {
		return nil
	}
	return slices.DeleteFunc(w.find(ctx, client.MatchingFields{byMeeting: meeting(o.GetNamespace(), to)}), func(r crreconcile.Request) bool {
		return r.NamespacedName == client.ObjectKeyFromObject(o)
	})
}

// secret wakes the exports of a store, those that write a Secret and those that it opens a
// repository for.
func (w *wakes) secret(ctx context.Context, o client.Object) []crreconcile.Request {
	out := w.find(ctx, client.MatchingFields{bySecret: reconcile.FieldValue("Secret", o.GetNamespace(), o.GetName())})
	if name := o.GetName(); name == state.StoreSecret || name == state.ExternalStoreSecret {
		out = append(out, w.find(ctx, client.MatchingFields{byStore: o.GetNamespace()})...)
	}
	return out
}

// configMap wakes the exports of a store.
func (w *wakes) configMap(ctx context.Context, o client.Object) []crreconcile.Request {
	if o.GetName() != state.StoreConfigMap {
		return nil
	}
	return w.find(ctx, client.MatchingFields{byStore: o.GetNamespace()})
}
