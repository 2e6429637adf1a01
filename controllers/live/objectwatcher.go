package live

import (
	"context"
	"maps"
	"slices"
	"sync"

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

// ObjectName identifies an object of a resource.
type ObjectName struct {
	Resource schema.GroupVersionResource
	types.NamespacedName
}

// ObjectWatcher watches the metadata of single objects by name, for as long as they have users. It
// keeps a State of each, which is the zero value for an object that does not exist.
type ObjectWatcher[User, State comparable] struct {
	client  metadata.Interface
	project func(metav1.Object) State

	mu      sync.Mutex
	notify  func(User)
	ctx     context.Context // set while the ObjectWatcher runs
	watches map[ObjectName]*objectWatch[User, State]
	objects map[User]sets.Set[ObjectName]
	wg      sync.WaitGroup
}

// objectWatch is the watch of one object. Its fields are guarded by ObjectWatcher.mu.
type objectWatch[User, State comparable] struct {
	users  map[User]struct{}
	cancel context.CancelFunc
	// state is valid only if known is true. version is its resource version.
	state   State
	version uint64
	known   bool
}

// NewObjectWatcher returns an ObjectWatcher for the cluster of cfg. project returns the State of an
// object.
func NewObjectWatcher[User, State comparable](cfg *rest.Config,
	project func(metav1.Object) State) (*ObjectWatcher[User, State], error) {
	cfg = metadata.ConfigFor(cfg)
	cfg.QPS, cfg.Burst, cfg.RateLimiter = -1, 0, nil
	cfg.Timeout = 0 // a timeout would also end watches
	c, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return newObjectWatcher[User](c, project), nil
}

func newObjectWatcher[User, State comparable](c metadata.Interface,
	project func(metav1.Object) State) *ObjectWatcher[User, State] {
	return &ObjectWatcher[User, State]{client: c, project: project, notify: func(User) {},
		watches: map[ObjectName]*objectWatch[User, State]{}, objects: map[User]sets.Set[ObjectName]{}}
}

// Subscribe sets the function that is called for each user of an object whose State changed.
func (w *ObjectWatcher[User, State]) Subscribe(notify func(User)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notify = notify
}

// Start watches until ctx ends, and returns when all watches have stopped.
func (w *ObjectWatcher[User, State]) Start(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	for name, x := range w.watches {
		w.startWatch(name, x)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.ctx = nil
	w.mu.Unlock()
	w.wg.Wait()
	return nil
}

// SetObjects replaces the objects of a user.
func (w *ObjectWatcher[User, State]) SetObjects(user User, objects []ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	previous, current := w.objects[user], sets.New(objects...)
	for name := range current {
		x := w.watches[name]
		if x == nil {
			x = &objectWatch[User, State]{users: map[User]struct{}{}}
			w.watches[name] = x
			w.startWatch(name, x)
		}
		x.users[user] = struct{}{}
	}
	if w.objects[user] = current; len(current) == 0 {
		delete(w.objects, user)
	}
	for name := range previous.Difference(current) {
		x := w.watches[name]
		if delete(x.users, user); len(x.users) > 0 {
			continue
		}
		delete(w.watches, name)
		if x.cancel != nil {
			x.cancel()
		}
	}
}

// State returns the last observed State of an object. known is false until the object was listed.
func (w *ObjectWatcher[User, State]) State(name ObjectName) (state State, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.watches[name]; x != nil && x.known {
		return x.state, true
	}
	return state, false
}

// Observe records an object from a response of the API server; nil for one that does not exist. It
// notifies nobody.
func (w *ObjectWatcher[User, State]) Observe(name ObjectName, o metav1.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.watches[name]; x != nil {
		x.set(o, w.project)
	}
}

// startWatch starts the watch of an object, if the ObjectWatcher runs. The caller holds w.mu.
func (w *ObjectWatcher[User, State]) startWatch(name ObjectName, x *objectWatch[User, State]) {
	if w.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	x.cancel = cancel
	w.wg.Go(func() {
		defer cancel()
		w.watchObject(ctx, name, x)
	})
}

// watchObject watches one object until ctx ends.
func (w *ObjectWatcher[User, State]) watchObject(ctx context.Context, name ObjectName, x *objectWatch[User, State]) {
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, name.Resource, name.Namespace, 0,
		cache.Indexers{}, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name.Name).String()
		}).Informer()
	seen := func(o any) { w.update(x, func() { x.set(o.(metav1.Object), w.project) }) }
	reg, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, o any) { seen(o) },
		DeleteFunc: func(any) { w.update(x, func() { x.set(nil, w.project) }) },
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

// set records an object, unless a newer version of it is known; nil for one that does not exist.
func (x *objectWatch[User, State]) set(o metav1.Object, project func(metav1.Object) State) {
	if o == nil {
		x.state, x.version = *new(State), 0
		return
	}
	if version := parseResourceVersion(o.GetResourceVersion()); version >= x.version {
		x.state, x.version = project(o), version
	}
}

// update applies a change to a watch with w.mu held. If the State is known and differs from the
// known State before, it then calls the subscriber for each user.
func (w *ObjectWatcher[User, State]) update(x *objectWatch[User, State], change func()) {
	w.mu.Lock()
	var users []User
	state, known, notify := x.state, x.known, w.notify
	change()
	if x.known && (!known || x.state != state) {
		users = slices.Collect(maps.Keys(x.users))
	}
	w.mu.Unlock()
	for _, u := range users {
		notify(u)
	}
}
