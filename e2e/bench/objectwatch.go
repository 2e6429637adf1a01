package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objectWatch watches the objects of one kind and waits until they match predicates.
type objectWatch struct {
	stop context.CancelFunc

	mu           sync.Mutex
	expectations []*expectation
}

// objectPredicate returns true if an object is in the expected state. The object is nil after its
// deletion.
type objectPredicate func(object *unstructured.Unstructured) bool

// expectation is a predicate that some objects have to match.
type expectation struct {
	matches   objectPredicate
	pending   map[types.NamespacedName]*unstructured.Unstructured // last version of the objects that do not match yet
	matchedAt timestamps                                          // when the other objects first matched
	done      chan struct{}                                       // closed when all objects have matched
}

// newObjectWatch watches a kind in all namespaces.
func newObjectWatch(ctx context.Context, config *rest.Config, kind schema.GroupVersionResource,
	selector string) (*objectWatch, error) {
	dynamics, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	b := &objectWatch{stop: stop}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamics, 0, metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.LabelSelector = selector })
	informer := factory.ForResource(kind).Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { b.handleEvent(o, false) },
		UpdateFunc: func(_, o any) { b.handleEvent(o, false) },
		DeleteFunc: func(o any) { b.handleEvent(o, true) },
	})
	if err != nil {
		stop()
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil, fmt.Errorf("watching %s: %w", kind.Resource, context.Cause(ctx))
	}
	return b, nil
}

func (b *objectWatch) handleEvent(o any, gone bool) {
	if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	object, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	if gone {
		object = nil
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.expectations {
		w.update(key, object, now)
	}
}

func (w *expectation) update(key types.NamespacedName, object *unstructured.Unstructured, now time.Time) {
	if _, ok := w.pending[key]; !ok {
		return
	}
	w.pending[key] = object
	if !w.matches(object) {
		return
	}
	delete(w.pending, key)
	w.matchedAt[key] = now
	if len(w.pending) == 0 {
		close(w.done)
	}
}

// expect registers an expectation. The caller registers it before it triggers the change: the
// current state of the objects does not count.
func (b *objectWatch) expect(keys []types.NamespacedName, matches objectPredicate) *expectation {
	w := &expectation{matches: matches, pending: map[types.NamespacedName]*unstructured.Unstructured{},
		matchedAt: timestamps{}, done: make(chan struct{})}
	for _, k := range keys {
		w.pending[k] = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expectations = append(b.expectations, w)
	return w
}

// await waits until each object has matched, and returns the times of the matches.
func (b *objectWatch) await(ctx context.Context, w *expectation) (timestamps, error) {
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expectations = slices.DeleteFunc(b.expectations, func(other *expectation) bool { return other == w })
	if len(w.pending) == 0 {
		return w.matchedAt, nil
	}
	example := slices.SortedFunc(maps.Keys(w.pending), func(x, y types.NamespacedName) int {
		return slices.Compare([]byte(x.String()), []byte(y.String()))
	})[0]
	return nil, errors.Join(context.Cause(ctx), fmt.Errorf("%d of %d objects are not in the expected state, such "+
		"as %s: %s",
		len(w.pending), len(w.pending)+len(w.matchedAt), example, describe(w.pending[example])))
}

// describe returns the state of an object for an error message.
func describe(object *unstructured.Unstructured) string {
	if object == nil {
		return "no event received"
	}
	if status, message := condition(object, "Ready"); status != "" {
		return fmt.Sprintf("Ready is %s: %s", status, message)
	}
	return fmt.Sprintf("status is %v", object.Object["status"])
}

// condition returns the status and the message of a condition; both are "" if it does not exist.
func condition(object *unstructured.Unstructured, kind string) (status, message string) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			status, _ = c["status"].(string)
			message, _ = c["message"].(string)
		}
	}
	return status, message
}

// ready matches installs of a peer that are ready at an acceptable revision.
func ready(p peer, acceptable func(revision string) bool) objectPredicate {
	return func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		revision := p.readyRevision(o)
		return revision != "" && acceptable(revision)
	}
}

// reconcileHandled matches installs, of ours or of Flux, that have handled a reconcile request.
func reconcileHandled(token string) objectPredicate {
	return func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		status, _ := condition(o, "Ready")
		handled, _, _ := unstructured.NestedString(o.Object, "status", "lastHandledReconcileAt")
		return status == "True" && handled == token
	}
}

// deleted matches deleted objects.
func deleted(o *unstructured.Unstructured) bool { return o == nil }
