package importstate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/stacks/state"
)

// Setup registers the controller of ImportStates with a manager.
type Setup struct {
	Reconciler *reconcile.Reconciler[*v1alpha1.ImportState]
	// Discovery reports which kinds of sources the cluster serves.
	Discovery             sourceref.Discovery
	DefaultServiceAccount string

	queue reconcile.Queue
}

// Names of the field indexes of ImportStates.
const (
	bySource  = ".spec.sourceRef"
	byAccount = ".spec.serviceAccountName"
	bySecret  = "secrets"
	byStore   = ".spec.store"
)

var indexers = map[string]func(*v1alpha1.ImportState) []string{
	bySource: func(in *v1alpha1.ImportState) []string {
		ref := in.Spec.SourceRef
		if ref == nil {
			return nil
		}
		return []string{reconcile.IndexValue(ref.Kind, cmp.Or(ref.Namespace, in.Namespace), ref.Name)}
	},
	bySecret: func(in *v1alpha1.ImportState) (out []string) {
		if d := in.Spec.Decryption; d != nil {
			out = append(out, reconcile.IndexValue("Secret", in.Namespace, d.SecretRef.Name))
		}
		if a := agentOf(&in.Spec); a != nil && a.SecretRef != nil {
			out = append(out, reconcile.IndexValue("Secret", in.Namespace, a.SecretRef.Name))
		}
		return out
	},
	byStore: func(in *v1alpha1.ImportState) []string {
		if agentOf(&in.Spec) != nil {
			return nil // the store may be in another cluster
		}
		return []string{storeNamespace(&in.Spec)}
	},
}

// Register adds the controller to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	all := maps.Clone(indexers)
	all[byAccount] = func(in *v1alpha1.ImportState) []string {
		return []string{reconcile.IndexValue("ServiceAccount", in.Namespace,
			cmp.Or(in.Spec.ServiceAccountName, s.DefaultServiceAccount))}
	}
	if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &v1alpha1.ImportState{}, all); err != nil {
		return err
	}
	var c controller.Controller
	sources := sourceref.NewWatcher(s.Discovery, func(kind string, object client.Object) error {
		return c.Watch(source.Kind(mgr.GetCache(), object, s.Reconciler.ByIndex(bySource, kind),
			predicate.Funcs{UpdateFunc: sourceref.ArtifactChanged}))
	}, s.enqueueAll)
	var err error
	c, err = s.Reconciler.NewBuilder(mgr).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(s.forSecret)).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"),
			s.Reconciler.ByIndex(byAccount, "ServiceAccount")).
		WatchesMetadata(reconcile.PartialMetadata("", "ConfigMap"), handler.EnqueueRequestsFromMapFunc(s.forConfigMap)).
		WatchesMetadata(reconcile.PartialMetadata("apiextensions.k8s.io", "CustomResourceDefinition"),
			handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []crreconcile.Request {
				if strings.HasSuffix(o.GetName(), "."+sourcev1.GroupVersion.Group) {
					sources.DefinitionChanged()
				}
				return nil
			})).
		WatchesRawSource(source.Func(s.queue.Start)).
		Build(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", v1alpha1.ImportStateKind, err)
	}
	// The sources that are served now are part of the initial sync. Errors are retried by the
	// watcher.
	_ = sources.Sync(ctx)
	return mgr.Add(sources)
}

// forSecret returns requests for the imports that use a Secret for decryption or for an agent, or
// whose store it is part of.
func (s *Setup) forSecret(ctx context.Context, o client.Object) []crreconcile.Request {
	if name := o.GetName(); name == state.StoreSecret || name == state.ExternalStoreSecret {
		return s.Reconciler.Requests(ctx, client.MatchingFields{byStore: o.GetNamespace()})
	}
	return s.Reconciler.Requests(ctx,
		client.MatchingFields{bySecret: reconcile.IndexValue("Secret", o.GetNamespace(), o.GetName())})
}

// forConfigMap returns requests for the imports into a store.
func (s *Setup) forConfigMap(ctx context.Context, o client.Object) []crreconcile.Request {
	if o.GetName() != state.StoreConfigMap {
		return nil
	}
	return s.Reconciler.Requests(ctx, client.MatchingFields{byStore: o.GetNamespace()})
}

// enqueueAll enqueues every import. It is called when the cluster serves other kinds of sources
// than before.
func (s *Setup) enqueueAll(ctx context.Context) {
	s.queue.Add(s.Reconciler.Requests(ctx)...)
}
