package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/ksctl/gitops/controllers/engine"
)

var nodesResource = corev1.SchemeGroupVersion.WithResource("nodes")

// NodeWatches watches the nodes of each target cluster. It is run by a manager.
type NodeWatches struct {
	// OnChange is called when the nodes of a cluster have changed, except for heartbeats.
	OnChange func(types.NamespacedName)

	mu  sync.Mutex
	ctx context.Context
	// early are the objects whose nodes were requested before Start.
	early []types.NamespacedName
	byKey map[types.NamespacedName]*nodeWatch
	wg    sync.WaitGroup
}

// nodeWatch watches the nodes of one cluster.
type nodeWatch struct {
	target   *engine.Target
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc
	// failure is the last error of the watch; nil if there was none.
	failure atomic.Pointer[error]
}

// Start implements manager.Runnable.
func (w *NodeWatches) Start(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	early := w.early
	w.mu.Unlock()
	for _, key := range early {
		w.OnChange(key)
	}
	<-ctx.Done()
	w.mu.Lock()
	w.ctx = nil
	w.mu.Unlock()
	w.wg.Wait()
	return nil
}

// Nodes returns the nodes of a cluster. The result is false until all nodes are listed; then
// OnChange is called. The caller must not modify the nodes.
func (w *NodeWatches) Nodes(key types.NamespacedName, t *engine.Target,
	c dynamic.Interface) ([]*corev1.Node, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx == nil {
		w.early = append(w.early, key)
		return nil, false, nil
	}
	x := w.byKey[key]
	if x == nil || x.target != t { // the connection to the cluster has changed
		if x != nil {
			x.cancel()
		}
		var err error
		if x, err = w.startWatch(key, t, c); err != nil {
			return nil, false, err
		}
	}
	if !x.informer.HasSynced() {
		if err := x.failure.Load(); err != nil {
			return nil, false, *err
		}
		return nil, false, nil
	}
	items := x.informer.GetStore().List()
	nodes := make([]*corev1.Node, 0, len(items))
	for _, item := range items {
		nodes = append(nodes, item.(*corev1.Node))
	}
	return nodes, true, nil
}

// Forget ends the watch of a cluster.
func (w *NodeWatches) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.byKey[key]; x != nil {
		x.cancel()
		delete(w.byKey, key)
	}
}

// startWatch starts to watch the nodes of a cluster. The caller holds the lock.
func (w *NodeWatches) startWatch(key types.NamespacedName, t *engine.Target, c dynamic.Interface) (*nodeWatch, error) {
	ctx, cancel := context.WithCancel(w.ctx)
	nodes := c.Resource(nodesResource)
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return nodes.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	wake := func() { w.OnChange(key) }
	x := &nodeWatch{target: t, informer: informer, cancel: cancel}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { wake() },
		DeleteFunc: func(any) { wake() },
		UpdateFunc: func(before, after any) {
			if !sameNode(before.(*corev1.Node), after.(*corev1.Node)) {
				wake()
			}
		},
	})
	err = errors.Join(err, informer.SetTransform(trimNode),
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			err = fmt.Errorf("watching the nodes of the cluster: %w", err)
			if x.failure.Swap(&err) == nil {
				wake()
			}
		}))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watching nodes: %w", err)
	}
	if w.byKey == nil {
		w.byKey = map[types.NamespacedName]*nodeWatch{}
	}
	w.byKey[key] = x
	w.wg.Go(func() { informer.RunWithContext(ctx) })
	w.wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			wake() // a cluster without nodes causes no event
		}
	})
	return x, nil
}

// sameNode reports whether two nodes differ at most in their resourceVersion, which each heartbeat
// changes.
func sameNode(before, after *corev1.Node) bool {
	b, a := *before, *after
	b.ResourceVersion, a.ResourceVersion = "", ""
	return apiequality.Semantic.DeepEqual(&b, &a)
}

// trimNode reduces a node to the fields that the controller uses.
func trimNode(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	var full corev1.Node
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &full); err != nil {
		return nil, fmt.Errorf("node %s: %w", u.GetName(), err)
	}
	node := &corev1.Node{Spec: full.Spec}
	m := &full.ObjectMeta
	node.ObjectMeta = metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp}
	if v, ok := m.Annotations[scaleDownDisabledAnnotation]; ok {
		node.Annotations = map[string]string{scaleDownDisabledAnnotation: v}
	}
	node.Status = corev1.NodeStatus{Capacity: full.Status.Capacity, Allocatable: full.Status.Allocatable,
		NodeInfo: full.Status.NodeInfo, Addresses: full.Status.Addresses}
	for _, c := range full.Status.Conditions {
		if c.Type == corev1.NodeReady {
			node.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status,
				LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return node, nil
}
