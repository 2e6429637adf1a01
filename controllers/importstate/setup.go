package importstate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
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
	Options               controller.Options
}

// Names of the field indexes of ImportStates.
const (
	bySource      = ".spec.sourceRef"
	byAccount     = ".spec.serviceAccountName"
	bySecret      = ".spec.decryption.secretRef"
	byAgentSecret = ".spec.store.agent.secretRef"
	byStore       = ".spec.store"
)

var indexers = map[string]func(*v1alpha1.ImportState) []string{
	bySource: func(in *v1alpha1.ImportState) []string {
		ref := in.Spec.SourceRef
		if ref == nil {
			return nil
		}
		namespace := ref.Namespace
		if namespace == "" {
			namespace = in.Namespace
		}
		return []string{reconcile.IndexValue(ref.Kind, namespace, ref.Name)}
	},
	bySecret: func(in *v1alpha1.ImportState) []string {
		if in.Spec.Decryption == nil {
			return nil
		}
		return []string{reconcile.IndexValue("Secret", in.Namespace, in.Spec.Decryption.SecretRef.Name)}
	},
	byAgentSecret: func(in *v1alpha1.ImportState) []string {
		a := agentOf(&in.Spec)
		if a == nil || a.SecretRef == nil {
			return nil
		}
		return []string{reconcile.IndexValue("Secret", in.Namespace, a.SecretRef.Name)}
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
		return []string{reconcile.IndexValue("ServiceAccount", in.Namespace, cmp.Or(in.Spec.ServiceAccountName, s.DefaultServiceAccount))}
	}
	if err := reconcile.AddIndexes(ctx, mgr.GetFieldIndexer(), &v1alpha1.ImportState{}, all); err != nil {
		return err
	}
	w := &requestMapper{reader: mgr.GetClient(), selector: s.Reconciler.Selector}
	var c controller.Controller
	sources := sourceref.NewWatcher(s.Discovery, func(kind string, object client.Object) error {
		eventHandler := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			return w.find(ctx, client.MatchingFields{bySource: reconcile.IndexValue(kind, o.GetNamespace(), o.GetName())})
		})
		return c.Watch(source.Kind(mgr.GetCache(), object, eventHandler, predicate.Funcs{UpdateFunc: sourceref.ArtifactChanged}))
	}, w.all)
	var err error
	c, err = ctrl.NewControllerManagedBy(mgr).Named("importstate").
		For(&v1alpha1.ImportState{}, builder.WithPredicates(s.Reconciler.SpecChanged())).
		WatchesMetadata(reconcile.PartialMetadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(w.secret)).
		WatchesMetadata(reconcile.PartialMetadata("", "ServiceAccount"), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			return w.find(ctx, client.MatchingFields{byAccount: reconcile.IndexValue("ServiceAccount", o.GetNamespace(), o.GetName())})
		})).
		WatchesMetadata(reconcile.PartialMetadata("", "ConfigMap"), handler.EnqueueRequestsFromMapFunc(w.configMap)).
		WatchesMetadata(reconcile.PartialMetadata("apiextensions.k8s.io", "CustomResourceDefinition"), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []crreconcile.Request {
			if strings.HasSuffix(o.GetName(), "."+sourcev1.GroupVersion.Group) {
				sources.DefinitionChanged()
			}
			return nil
		})).
		WatchesRawSource(source.Func(w.queue.Start)).
		WithOptions(s.Options).
		Build(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", v1alpha1.ImportStateKind, err)
	}
	// The sources that are served now are part of the initial sync. Errors are retried by the
	// watcher.
	_ = sources.Sync(ctx)
	return mgr.Add(sources)
}

// requestMapper maps events to requests for the imports that they affect.
type requestMapper struct {
	reader   client.Reader
	selector predicate.Predicate
	queue    reconcile.Queue
}

func (w *requestMapper) find(ctx context.Context, opts ...client.ListOption) []crreconcile.Request {
	return reconcile.RequestsFor(ctx, w.reader, &v1alpha1.ImportStateList{}, w.selector, opts...)
}

// secret returns requests for the imports that use a Secret for decryption or for an agent, or
// whose store it is part of.
func (w *requestMapper) secret(ctx context.Context, o client.Object) []crreconcile.Request {
	if name := o.GetName(); name == state.StoreSecret || name == state.ExternalStoreSecret {
		return w.find(ctx, client.MatchingFields{byStore: o.GetNamespace()})
	}
	name := reconcile.IndexValue("Secret", o.GetNamespace(), o.GetName())
	return append(w.find(ctx, client.MatchingFields{bySecret: name}), w.find(ctx, client.MatchingFields{byAgentSecret: name})...)
}

// configMap returns requests for the imports into a store.
func (w *requestMapper) configMap(ctx context.Context, o client.Object) []crreconcile.Request {
	if o.GetName() != state.StoreConfigMap {
		return nil
	}
	return w.find(ctx, client.MatchingFields{byStore: o.GetNamespace()})
}

// all enqueues every import. It is called when the cluster serves other kinds of sources than
// before.
func (w *requestMapper) all(ctx context.Context) {
	w.queue.Add(w.find(ctx)...)
}
