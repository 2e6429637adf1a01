package dependency

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Target is an object that somebody depends on.
type Target struct {
	Resource schema.GroupVersionResource
	types.NamespacedName
}

// At is the target of an object of a kind.
func At(m *meta.RESTMapping, name types.NamespacedName) Target {
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		name.Namespace = ""
	}
	return Target{Resource: m.Resource, NamespacedName: name}
}

// Watcher watches targets for as long as somebody uses them.
type Watcher struct {
	client metadata.Interface

	mu      sync.Mutex
	wake    func(user types.NamespacedName)
	ctx     context.Context // set while it runs
	watches map[Target]*watch
	targets map[types.NamespacedName][]Target
	wg      sync.WaitGroup
}

// watch is one target. Its fields are guarded by Watcher.mu.
type watch struct {
	users  map[types.NamespacedName]struct{}
	cancel context.CancelFunc
	// version is the resource version of the object, empty when it is absent;
	// it counts once known.
	version string
	known   bool
}

// New returns a Watcher of the cluster that cfg leads to.
func New(cfg *rest.Config) (*Watcher, error) {
	cfg = metadata.ConfigFor(cfg)
	cfg.QPS, cfg.Burst, cfg.RateLimiter = -1, 0, nil
	cfg.Timeout = 0 // it would end the watches, too
	c, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return newWatcher(c), nil
}

func newWatcher(c metadata.Interface) *Watcher {
	return &Watcher{client: c, wake: func(types.NamespacedName) {}, watches: map[Target]*watch{}, targets: map[types.NamespacedName][]Target{}}
}

// Subscribe calls wake with each user of an object that changed, from now on.
func (w *Watcher) Subscribe(wake func(user types.NamespacedName)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake = wake
}

// Start watches until ctx ends, and returns when everything that it started has ended.
func (w *Watcher) Start(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	for t, x := range w.watches {
		w.launch(t, x)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.ctx = nil
	w.mu.Unlock()
	w.wg.Wait()
	return nil
}

// Use says what a user depends on, in place of what it said before.
func (w *Watcher) Use(user types.NamespacedName, targets []Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.targets[user]
	targets = distinct(targets)
	for _, t := range targets {
		x := w.watches[t]
		if x == nil {
			x = &watch{users: map[types.NamespacedName]struct{}{}}
			w.watches[t] = x
			w.launch(t, x)
		}
		x.users[user] = struct{}{}
	}
	if w.targets[user] = targets; len(targets) == 0 {
		delete(w.targets, user)
	}
	for _, t := range before {
		if !slices.Contains(targets, t) {
			w.leave(user, t)
		}
	}
}

// leave takes a user off a target. The lock is held.
func (w *Watcher) leave(user types.NamespacedName, t Target) {
	x := w.watches[t]
	if x == nil {
		return
	}
	if delete(x.users, user); len(x.users) > 0 {
		return
	}
	delete(w.watches, t)
	if x.cancel != nil {
		x.cancel()
	}
}

// distinct has each target once, in a slice of its own.
func distinct(targets []Target) []Target {
	var out []Target
	for _, t := range targets {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// Version is the resource version that a target was last seen with, empty when
// it is absent. It is not known until the target was listed.
func (w *Watcher) Version(t Target) (version string, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.watches[t]; x != nil {
		return x.version, x.known
	}
	return "", false
}

// launch starts to watch a target. The lock is held.
func (w *Watcher) launch(t Target, x *watch) {
	if w.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	x.cancel = cancel
	w.wg.Go(func() {
		defer cancel()
		w.follow(ctx, t, x)
	})
}

// follow watches one object until ctx ends.
func (w *Watcher) follow(ctx context.Context, t Target, x *watch) {
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, t.Resource, t.Namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", t.Name).String()
		}).Informer()
	seen := func(o any) { w.seen(x, o.(metav1.Object).GetResourceVersion()) }
	reg, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, o any) { seen(o) },
		DeleteFunc: func(any) { w.seen(x, "") },
	})
	if err != nil {
		return // it was stopped
	}
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		w.synced(x)
	}
	wg.Wait()
}

// seen takes note of a change and wakes the users.
func (w *Watcher) seen(x *watch, version string) {
	w.tell(x, func() bool {
		changed := x.version != version
		x.version = version
		return changed && x.known
	})
}

// synced says that what was seen is all that there is.
func (w *Watcher) synced(x *watch) {
	w.tell(x, func() bool {
		changed := !x.known
		x.known = true
		return changed
	})
}

// tell wakes the users of a watch if a change matters.
func (w *Watcher) tell(x *watch, change func() bool) {
	w.mu.Lock()
	var users []types.NamespacedName
	wake := w.wake
	if change() {
		for u := range x.users {
			users = append(users, u)
		}
	}
	w.mu.Unlock()
	for _, u := range users {
		wake(u)
	}
}
