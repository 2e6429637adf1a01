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

// Setup says what the controller watches.
type Setup struct {
	Reconciler *reconcile.Reconciler[*v1alpha1.ImportState]
	// Served tells which kinds of sources there are.
	Served                sourceref.Served
	DefaultServiceAccount string
	Options               controller.Options
}

// Fields by which imports are found.
const (
	bySource  = "spec.sourceRef of an import"
	byAccount = "spec.serviceAccountName of an import"
	bySecret  = "spec.decryption.secretRef"
	byAgent   = "spec.store.agent.secretRef"
	byStore   = "spec.store"
)

var fields = map[string]func(*v1alpha1.ImportState) string{
	bySource: func(in *v1alpha1.ImportState) string {
		ref := in.Spec.SourceRef
		if ref == nil {
			return ""
		}
		namespace := ref.Namespace
		if namespace == "" {
			namespace = in.Namespace
		}
		return reconcile.FieldValue(ref.Kind, namespace, ref.Name)
	},
	bySecret: func(in *v1alpha1.ImportState) string {
		if in.Spec.Decryption == nil {
			return ""
		}
		return reconcile.FieldValue("Secret", in.Namespace, in.Spec.Decryption.SecretRef.Name)
	},
	byAgent: func(in *v1alpha1.ImportState) string {
		a := agentOf(&in.Spec)
		if a == nil || a.SecretRef == nil {
			return ""
		}
		return reconcile.FieldValue("Secret", in.Namespace, a.SecretRef.Name)
	},
	byStore: func(in *v1alpha1.ImportState) string {
		if agentOf(&in.Spec) != nil {
			return "" // another cluster's
		}
		return namespaceOf(&in.Spec)
	},
}

// Register adds the controller to a manager.
func (s *Setup) Register(ctx context.Context, mgr ctrl.Manager) error {
	all := maps.Clone(fields)
	all[byAccount] = func(in *v1alpha1.ImportState) string {
		return reconcile.FieldValue("ServiceAccount", in.Namespace, cmp.Or(in.Spec.ServiceAccountName, s.DefaultServiceAccount))
	}
	for field, of := range all {
		err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.ImportState{}, field, func(o client.Object) []string {
			return []string{of(o.(*v1alpha1.ImportState))}
		})
		if err != nil {
			return fmt.Errorf("index of %s: %w", Kind, err)
		}
	}
	w := &wakes{reader: mgr.GetClient(), selector: s.Reconciler.Selector}
	var c controller.Controller
	sources := sourceref.NewWatches(s.Served, func(kind string, object client.Object) error {
		wake := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			return w.find(ctx, client.MatchingFields{bySource: reconcile.FieldValue(kind, o.GetNamespace(), o.GetName())})
		})
		return c.Watch(source.Kind(mgr.GetCache(), object, wake, predicate.Funcs{UpdateFunc: sourceref.ArtifactChanged}))
	}, w.all)
	var err error
	c, err = ctrl.NewControllerManagedBy(mgr).Named("importstate").
		For(&v1alpha1.ImportState{}, builder.WithPredicates(s.Reconciler.Wishes())).
		WatchesMetadata(reconcile.Metadata("", "Secret"), handler.EnqueueRequestsFromMapFunc(w.secret)).
		WatchesMetadata(reconcile.Metadata("", "ServiceAccount"), handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
			return w.find(ctx, client.MatchingFields{byAccount: reconcile.FieldValue("ServiceAccount", o.GetNamespace(), o.GetName())})
		})).
		WatchesMetadata(reconcile.Metadata("", "ConfigMap"), handler.EnqueueRequestsFromMapFunc(w.configMap)).
		WatchesMetadata(reconcile.Metadata("apiextensions.k8s.io", "CustomResourceDefinition"), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []crreconcile.Request {
			if strings.HasSuffix(o.GetName(), "."+sourcev1.GroupVersion.Group) {
				sources.Changed()
			}
			return nil
		})).
		WatchesRawSource(source.Func(w.queue.Start)).
		WithOptions(s.Options).
		Build(s.Reconciler)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", Kind, err)
	}
	// What is served by now is listed with the rest; what can't be told is asked for again.
	_ = sources.Ask(ctx)
	return mgr.Add(sources)
}

// wakes finds the imports that an event concerns.
type wakes struct {
	reader   client.Reader
	selector predicate.Predicate
	queue    reconcile.Queue
}

func (w *wakes) find(ctx context.Context, opts ...client.ListOption) []crreconcile.Request {
	return reconcile.Find(ctx, w.reader, &v1alpha1.ImportStateList{}, w.selector, opts...)
}

// secret wakes the imports that are decrypted or sent with a Secret, and those of its store.
func (w *wakes) secret(ctx context.Context, o client.Object) []crreconcile.Request {
	if name := o.GetName(); name == state.StoreSecret || name == state.ExternalStoreSecret {
		return w.find(ctx, client.MatchingFields{byStore: o.GetNamespace()})
	}
	name := reconcile.FieldValue("Secret", o.GetNamespace(), o.GetName())
	return append(w.find(ctx, client.MatchingFields{bySecret: name}), w.find(ctx, client.MatchingFields{byAgent: name})...)
}

// configMap wakes the imports of a store.
func (w *wakes) configMap(ctx context.Context, o client.Object) []crreconcile.Request {
	if o.GetName() != state.StoreConfigMap {
		return nil
	}
	return w.find(ctx, client.MatchingFields{byStore: o.GetNamespace()})
}

// all wakes every import: the cluster serves other kinds of sources than before.
func (w *wakes) all(ctx context.Context) {
	w.queue.Add(w.find(ctx)...)
}
