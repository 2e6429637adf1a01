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

// board knows from a watch how far objects of one kind are.
type board struct {
	stop context.CancelFunc

	mu     sync.Mutex
	awaits []*wait
}

// check says whether an object is as it is waited for; nil when it is gone.
type check func(key types.NamespacedName, object *unstructured.Unstructured) bool

// wait is for some objects.
type wait struct {
	ok   check
	last map[types.NamespacedName]*unstructured.Unstructured // of those that are not there yet
	at   map[types.NamespacedName]time.Time
	done chan struct{}
}

// newBoard watches a kind, in all namespaces.
func newBoard(ctx context.Context, config *rest.Config, kind schema.GroupVersionResource, selector string) (*board, error) {
	dynamics, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	b := &board{stop: stop}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamics, 0, metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.LabelSelector = selector })
	informer := factory.ForResource(kind).Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { b.tell(o, false) },
		UpdateFunc: func(_, o any) { b.tell(o, false) },
		DeleteFunc: func(o any) { b.tell(o, true) },
	})
	if err != nil {
		stop()
		return nil, err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil, fmt.Errorf("watch %s: %w", kind.Resource, context.Cause(ctx))
	}
	return b, nil
}

func (b *board) tell(o any, gone bool) {
	if tomb, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tomb.Obj
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
	for _, w := range b.awaits {
		w.tell(key, object, now)
	}
}

func (w *wait) tell(key types.NamespacedName, object *unstructured.Unstructured, now time.Time) {
	if _, ok := w.last[key]; !ok {
		return
	}
	w.last[key] = object
	if !w.ok(key, object) {
		return
	}
	delete(w.last, key)
	w.at[key] = now
	if len(w.last) == 0 {
		close(w.done)
	}
}

// expect begins to wait. It must be called before that happens which changes
// the objects: what they are now does not count.
func (b *board) expect(keys []types.NamespacedName, ok check) *wait {
	w := &wait{ok: ok, last: map[types.NamespacedName]*unstructured.Unstructured{}, at: map[types.NamespacedName]time.Time{}, done: make(chan struct{})}
	for _, k := range keys {
		w.last[k] = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaits = append(b.awaits, w)
	return w
}

// await returns when each was as it should be.
func (b *board) await(ctx context.Context, w *wait) (map[types.NamespacedName]time.Time, error) {
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaits = slices.DeleteFunc(b.awaits, func(other *wait) bool { return other == w })
	if len(w.last) == 0 {
		return w.at, nil
	}
	example := slices.SortedFunc(maps.Keys(w.last), func(x, y types.NamespacedName) int {
		return slices.Compare([]byte(x.String()), []byte(y.String()))
	})[0]
	return nil, errors.Join(context.Cause(ctx), fmt.Errorf("%d of %d are not as they should be, such as %s: %s",
		len(w.last), len(w.last)+len(w.at), example, describe(w.last[example])))
}

// describe says how an object stands.
func describe(object *unstructured.Unstructured) string {
	if object == nil {
		return "nothing was heard of it"
	}
	if status, message := condition(object, "Ready"); status != "" {
		return fmt.Sprintf("Ready is %s: %s", status, message)
	}
	return fmt.Sprintf("its status is %v", object.Object["status"])
}

// condition of an object, and its message.
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

// ready is met by installs of a peer that are ready at a revision that will do.
func ready(p peer, will func(revision string) bool) check {
	return func(_ types.NamespacedName, o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		revision := p.readyAt(o)
		return revision != "" && will(revision)
	}
}

// answered is met by installs, of ours or of Flux, that have answered a request to reconcile.
func answered(token string) check {
	return func(_ types.NamespacedName, o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		status, _ := condition(o, "Ready")
		handled, _, _ := unstructured.NestedString(o.Object, "status", "lastHandledReconcileAt")
		return status == "True" && handled == token
	}
}

// gone is met by objects that are no more.
func gone(_ types.NamespacedName, o *unstructured.Unstructured) bool { return o == nil }
