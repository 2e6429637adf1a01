package reconcile

import (
	"context"
	"fmt"
	"sync/atomic"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Wishes lets the changes of an object through that somebody asks for something by:
// writing a status wakes nobody. One that is another shard's from now on is looked at
// once more, to be forgotten.
func (r *Reconciler[T]) Wishes() predicate.Predicate {
	arrived := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		r.memory.cached(client.ObjectKeyFromObject(e.ObjectNew), e.ObjectNew)
		return true
	}}
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	ours := predicate.NewPredicateFuncs(r.selects)
	ours.UpdateFunc = func(e event.UpdateEvent) bool { return r.selects(e.ObjectOld) || r.selects(e.ObjectNew) }
	return predicate.And[client.Object](arrived, changed, ours)
}

func (r *Reconciler[T]) selects(o client.Object) bool {
	return r.Selector == nil || r.Selector.Generic(event.GenericEvent{Object: o})
}

// Metadata is an object of a kind of version v1 by its metadata alone, for watches that need no more.
func Metadata(group, kind string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	return m
}

// FieldValue is what an index has of a reference to an object.
func FieldValue(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// Queue is that of a controller, for what no event of an object tells. What is added before
// Start is dropped: everything is looked at then.
type Queue struct {
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[crreconcile.Request]]
}

// Start is the source.Func of the controller whose queue it is.
func (q *Queue) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[crreconcile.Request]) error {
	q.queue.Store(&queue)
	return nil
}

// Add wakes objects.
func (q *Queue) Add(requests ...crreconcile.Request) {
	queue := q.queue.Load()
	if queue == nil {
		return
	}
	for _, r := range requests {
		(*queue).Add(r)
	}
}

// Find returns a request for each object of a list that a selector, if there is
// one, lets through. The reader is a cache with the index that the options name.
func Find(ctx context.Context, reader client.Reader, list client.ObjectList, selector predicate.Predicate, opts ...client.ListOption) []crreconcile.Request {
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
	if err != nil {
		log.FromContext(ctx).Error(err, "not woken", "list", fmt.Sprintf("%T", list))
		return nil
	}
	return out
}
