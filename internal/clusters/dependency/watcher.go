package dependency

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Object is an object that others depend on.
type Object struct {
	Resource schema.GroupVersionResource
	types.NamespacedName
}

// ObjectOf returns the Object with a kind and a name. It ignores the namespace of cluster-scoped
// kinds.
func ObjectOf(m *meta.RESTMapping, name types.NamespacedName) Object {
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		name.Namespace = ""
	}
	return Object{Resource: m.Resource, NamespacedName: name}
}

// Watcher watches objects for as long as they have dependents.
type Watcher struct {
	client metadata.Interface

	mu      sync.Mutex
	notify  func(user types.NamespacedName)
	ctx     context.Context // set while the Watcher runs
	watches map[Object]*watch
	objects map[types.NamespacedName]sets.Set[Object]
	wg      sync.WaitGroup
}

// watch is the watch of one object. Its fields are guarded by Watcher.mu.
type watch struct {
	users  map[types.NamespacedName]struct{}
	cancel context.CancelFunc
	// version is the resource version of the object, empty if the object does not exist. It is
	// valid only if known is true.
	version string
	known   bool
}

// New returns a Watcher for the cluster of cfg.
func New(cfg *rest.Config) (*Watcher, error) {
	cfg = metadata.ConfigFor(cfg)
	cfg.QPS, cfg.Burst, cfg.RateLimiter = -1, 0, nil
	cfg.Timeout = 0 // a timeout would also end watches
	c, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return newWatcher(c), nil
}

func newWatcher(c metadata.Interface) *Watcher {
	return &Watcher{client: c, notify: func(types.NamespacedName) {}, watches: map[Object]*watch{},
		objects: map[types.NamespacedName]sets.Set[Object]{}}
}

// Subscribe sets the function that is called for each dependent of a changed object.
func (w *Watcher) Subscribe(notify func(user types.NamespacedName)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notify = notify
}

// Start watches until ctx ends, and returns when all watches have stopped.
func (w *Watcher) Start(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	for t, x := range w.watches {
		w.startWatch(t, x)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.ctx = nil
	w.mu.Unlock()
	w.wg.Wait()
	return nil
}

// SetDependencies replaces the objects that a dependent depends on.
func (w *Watcher) SetDependencies(user types.NamespacedName, objects []Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	previous, current := w.objects[user], sets.New(objects...)
	for t := range current {
		x := w.watches[t]
		if x == nil {
			x = &watch{users: map[types.NamespacedName]struct{}{}}
			w.watches[t] = x
			w.startWatch(t, x)
		}
		x.users[user] = struct{}{}
	}
	if w.objects[user] = current; len(current) == 0 {
		delete(w.objects, user)
	}
	for t := range previous.Difference(current) {
		x := w.watches[t]
		if delete(x.users, user); len(x.users) > 0 {
			continue
		}
		delete(w.watches, t)
		if x.cancel != nil {
			x.cancel()
		}
	}
}

// Version returns the last observed resource version of an object, empty if the object does not
// exist. known is false until the object was listed.
func (w *Watcher) Version(t Object) (version string, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.watches[t]; x != nil {
		return x.version, x.known
	}
	return "", false
}

// startWatch starts the watch of an object, if the Watcher runs. The caller holds w.mu.
func (w *Watcher) startWatch(t Object, x *watch) {
	if w.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	x.cancel = cancel
	w.wg.Go(func() {
		defer cancel()
		w.watchObject(ctx, t, x)
	})
}

// watchObject watches one object until ctx ends.
func (w *Watcher) watchObject(ctx context.Context, t Object, x *watch) {
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, t.Resource, t.Namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", t.Name).String()
		}).Informer()
	seen := func(o any) { w.update(x, func() { x.version = o.(metav1.Object).GetResourceVersion() }) }
	reg, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, o any) { seen(o) },
		DeleteFunc: func(any) { w.update(x, func() { x.version = "" }) },
	})
	if err != nil {
		return // the informer was stopped
	}
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		w.update(x, func() { x.known = true }) // after the initial list
	}
	wg.Wait()
}

// update applies a change to a watch with w.mu held. If the version is known and differs from the
// known version before, it then calls the subscriber for each dependent.
func (w *Watcher) update(x *watch, change func()) {
	w.mu.Lock()
	var users []types.NamespacedName
	version, known, notify := x.version, x.known, w.notify
	change()
	if x.known && (!known || x.version != version) {
		users = slices.Collect(maps.Keys(x.users))
	}
	w.mu.Unlock()
	for _, u := range users {
		notify(u)
	}
}
