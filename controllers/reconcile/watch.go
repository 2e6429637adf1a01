package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// SpecChanged returns a predicate for events that change the generation, the annotations or the
// labels of an object; writes of the status do not pass. An object that moves to another shard
// passes once more, so that the Reconciler forgets it.
func (r *Reconciler[T]) SpecChanged() predicate.Predicate {
	dropCached := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		r.recent.dropIfCached(client.ObjectKeyFromObject(e.ObjectNew), e.ObjectNew)
		return true
	}}
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{},
		predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	selected := predicate.NewPredicateFuncs(r.selects)
	selected.UpdateFunc = func(e event.UpdateEvent) bool { return r.selects(e.ObjectOld) || r.selects(e.ObjectNew) }
	return predicate.And[client.Object](dropCached, changed, selected)
}

func (r *Reconciler[T]) selects(o client.Object) bool {
	return r.Selector == nil || r.Selector.Generic(event.GenericEvent{Object: o})
}

// NewBuilder returns a builder of the controller of the kind. It has no watches besides that of the
// kind.
func (r *Reconciler[T]) NewBuilder(mgr ctrl.Manager) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(strings.ToLower(r.Kind)).
		For(r.New(), builder.WithPredicates(r.SpecChanged())).WithOptions(r.Options)
}

// Func reconciles objects that have no status for it: work that the reconciler of a kind must not
// wait for. It returns the time until the next reconcile; 0: an event triggers it.
type Func func(ctx context.Context, key types.NamespacedName) (time.Duration, error)

// Reconcile implements reconcile.Reconciler. As in a Reconciler, a conflict is retried at once, and
// an object that is gone is no error.
func (f Func) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	next, err := f(ctx, req.NamespacedName)
	switch {
	case ctx.Err() != nil:
		return ctrl.Result{}, ctx.Err() // the process is shutting down
	case err != nil:
		return resultForError(err)
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// NewBuilder returns a builder of a controller with this name. It has no watches.
func (f Func) NewBuilder(mgr ctrl.Manager, name string, options controller.Options) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(options)
}

// Requests returns the requests of RequestsFor for the objects of the kind.
func (r *Reconciler[T]) Requests(ctx context.Context, opts ...client.ListOption) []crreconcile.Request {
	return RequestsFor(ctx, r.Client, r.NewList(), r.Selector, opts...)
}

// ByIndex returns a handler for objects of another kind, which enqueues the objects that refer to
// them according to a field index with values of IndexValue.
func (r *Reconciler[T]) ByIndex(field, kind string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []crreconcile.Request {
		return r.Requests(ctx, client.MatchingFields{field: IndexValue(kind, o.GetNamespace(), o.GetName())})
	})
}

// PartialMetadata returns an empty PartialObjectMetadata of a kind in version v1, for watches that
// need only the metadata.
func PartialMetadata(group, kind string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	return m
}

// PermissionEvents are called with a namespace; empty for the whole cluster.
type PermissionEvents struct {
	// Changed is called after a role, a binding or a namespace was created or changed. Which
	// account a binding is for is not known: its metadata does not have it.
	Changed func(namespace string, q workqueue.TypedRateLimitingInterface[crreconcile.Request])
	// Terminating is called when the deletion of a namespace begins.
	Terminating func(ctx context.Context, namespace string,
		q workqueue.TypedRateLimitingInterface[crreconcile.Request])
}

// WatchPermissions adds the watches of the kinds that permissions depend on.
func WatchPermissions(b *builder.Builder, events PermissionEvents) *builder.Builder {
	b = b.WatchesMetadata(PartialMetadata("", "Namespace"), events.handler(client.Object.GetName))
	for _, kind := range []string{"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} {
		b = b.WatchesMetadata(PartialMetadata(rbacv1.GroupName, kind), events.handler(client.Object.GetNamespace))
	}
	return b
}

func (p PermissionEvents) handler(namespaceOf func(client.Object) string) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent,
			q workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
			if !e.IsInInitialList {
				p.Changed(namespaceOf(e.Object), q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent,
			q workqueue.TypedRateLimitingInterface[crreconcile.Request]) {
			namespace := namespaceOf(e.ObjectNew)
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				p.Changed(namespace, q)
			}
			isNamespace := e.ObjectNew.GetNamespace() == "" && namespace != ""
			if isNamespace && e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil {
				p.Terminating(ctx, namespace, q)
			}
		},
	}
}

// AddIndexes adds field indexes of the kind of empty to a cache. An indexer returns the values of
// an object in the index.
func AddIndexes[T client.Object](ctx context.Context, cache client.FieldIndexer, empty T,
	indexers map[string]func(T) []string) error {
	for field, values := range indexers {
		if err := cache.IndexField(ctx, empty, field, func(o client.Object) []string {
			return values(o.(T))
		}); err != nil {
			return fmt.Errorf("indexing %T by %q: %w", empty, field, err)
		}
	}
	return nil
}

// IndexValue returns the value of a reference in a field index: <kind>/<namespace>/<name>.
func IndexValue(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// Queue gives access to the workqueue of a controller, for triggers other than object events.
// Requests before Start are dropped: at the start, the controller reconciles all objects.
type Queue struct {
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[crreconcile.Request]]
}

// Start is the source.Func of the controller.
func (q *Queue) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[crreconcile.Request]) error {
	q.queue.Store(&queue)
	return nil
}

// Add enqueues requests.
func (q *Queue) Add(requests ...crreconcile.Request) {
	queue := q.queue.Load()
	if queue == nil {
		return
	}
	for _, r := range requests {
		(*queue).Add(r)
	}
}

// RequestsFor lists objects and returns a request for each one that the selector matches; a nil
// selector matches all. The reader is a cache with the field index that the options use. It logs an
// error of the list and returns nothing.
func RequestsFor(ctx context.Context, reader client.Reader, list client.ObjectList, selector predicate.Predicate,
	opts ...client.ListOption) []crreconcile.Request {
	var out []crreconcile.Request
	err := reader.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...)
	if err == nil {
		err = apimeta.EachListItem(list, func(item runtime.Object) error {
			if o := item.(client.Object); selector == nil || selector.Generic(event.GenericEvent{Object: o}) {
				out = append(out, crreconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
			}
			return nil
		})
	}
	if _, starting := errors.AsType[*cache.ErrCacheNotStarted](err); starting {
		return nil // all objects are enqueued when the cache has started
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "unable to list objects to enqueue", "list", fmt.Sprintf("%T", list))
		return nil
	}
	return out
}
