package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/ksctl/gitops/stacks"
)

// Index holds what is known of the managed objects of one cluster. Its methods
// may be called at any time, from any goroutine; nothing is watched until Start.
type Index struct {
	opts     Options
	client   rest.Interface
	notify   *notifier
	interned interner
	lists    chan struct{}

	mu     sync.RWMutex
	groups map[schema.GroupKind]*group
	awaits awaits
	// fresh are objects that came up and that their owner was not asked about yet.
	fresh map[string][]located
	// deleting are the objects whose deletion was asked for and not answered yet.
	deleting map[stacks.Ref]types.UID
	stats    counters
	// ctx is set while the index runs.
	ctx      context.Context
	started  bool
	confirms workqueue.TypedRateLimitingInterface[stacks.Ref]
	wg       sync.WaitGroup
}

// ErrStarted says that an index was started twice.
var ErrStarted = errors.New("the index was started before")

// New makes an index of the cluster that cfg leads to. cfg is copied; its rate
// limits are left out, what an index requests is bounded by Options.
func New(cfg *rest.Config, o Options) (*Index, error) {
	if o.Owner == "" {
		return nil, errors.New("live.Options.Owner is the value of the label that is watched: it can't be empty")
	}
	o.setDefaults()
	c := dynamic.ConfigFor(cfg)
	c.GroupVersion = nil
	c.APIPath = "/"
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil
	// A time limit of the client would end the watches, too.
	c.Timeout = 0
	c.WarningHandler = rest.NoWarnings{}
	c.WarningHandlerWithContext = nil
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("live index: %w", err)
	}
	client, err := rest.UnversionedRESTClientForConfigAndClient(c, h)
	if err != nil {
		return nil, fmt.Errorf("live index: %w", err)
	}
	ix := &Index{
		opts:   o,
		client: client,
		lists:  make(chan struct{}, o.Lists),
		groups: map[schema.GroupKind]*group{},
		fresh:  map[string][]located{},

		deleting: map[stacks.Ref]types.UID{},
	}
	ix.notify = newNotifier(ix.mu.RLocker())
	return ix, nil
}

// Start watches until ctx ends, and returns when everything that it started has
// ended, nil unless it was started before.
func (ix *Index) Start(ctx context.Context) error {
	ix.mu.Lock()
	if ix.started {
		ix.mu.Unlock()
		return ErrStarted
	}
	ix.started = true
	ix.ctx = ctx
	ix.confirms = ix.newConfirms()
	ix.wg.Go(func() { ix.notify.run(ctx) })
	ix.wg.Go(func() { ix.tidy(ctx) })
	for range ix.opts.Confirms {
		ix.wg.Go(func() { ix.confirmAll(ctx) })
	}
	for _, g := range ix.groups {
		for _, w := range g.watches {
			ix.launch(w)
		}
	}
	ix.mu.Unlock()

	<-ctx.Done()
	ix.mu.Lock()
	ix.ctx = nil
	ix.confirms.ShutDown()
	ix.mu.Unlock()
	ix.wg.Wait()
	return nil
}

// launch is called with the lock held.
func (ix *Index) launch(w *watcher) {
	if ix.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(ix.ctx)
	w.cancel = cancel
	ix.wg.Go(func() {
		defer cancel()
		w.run(ctx)
	})
}

// Use says which kinds an owner needs from now on, in place of those that it
// named before; none releases all. A kind that no owner uses goes on being
// watched for Options.Grace.
func (ix *Index) Use(ownerKey string, kinds []*meta.RESTMapping) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	want := make(map[watchKey]bool, len(kinds))
	for _, m := range kinds {
		key := watchKey{gvk: m.GroupVersionKind, gvr: m.Resource}
		want[key] = true
		g := ix.group(key.gvk.GroupKind())
		w := g.watches[key]
		if w == nil {
			w = newWatcher(ix, key)
			g.watches[key] = w
			ix.launch(w)
		}
		w.users[ownerKey] = struct{}{}
		w.idleSince = time.Time{}
	}
	now := ix.opts.Clock.Now()
	for _, g := range ix.groups {
		for key, w := range g.watches {
			if _, used := w.users[ownerKey]; !used || want[key] {
				continue
			}
			delete(w.users, ownerKey)
			if len(w.users) == 0 {
				w.idleSince = now
			}
		}
	}
}

// Wake makes the watches of a kind try again at once: its CRD or APIService
// changed, or the controller was allowed something.
func (ix *Index) Wake(gk schema.GroupKind) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	g := ix.groups[gk]
	if g == nil {
		return
	}
	for _, w := range g.watches {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	for n := range g.unconfirmed {
		ref := g.ref(n)
		ix.confirms.Forget(ref)
		ix.confirms.Add(ref)
	}
}

// Get returns what is known of an object. Whether that is how it is, Synced
// says. A zero Object and false: there is no such object with our mark.
func (ix *Index) Get(ref stacks.Ref) (Object, bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	g := ix.groups[ref.GroupKind()]
	if g == nil {
		return Object{}, false
	}
	n := name{ref.Namespace, ref.Name}
	e := g.objects[n]
	if e == nil {
		return Object{}, false
	}
	return e.unpack(g.gk, n), true
}

// Synced returns nil when the index can vouch for a kind, and a *SyncError otherwise.
func (ix *Index) Synced(gk schema.GroupKind) error {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	g := ix.groups[gk]
	if g == nil {
		return &SyncError{GroupKind: gk, Reason: NotWatched}
	}
	return g.synced(ix.opts.Clock.Now(), ix.opts.StaleAfter)
}

// Observe tells the index of an object that the API server returned: to an
// apply, or to a GET. The newer of it and of what is known counts. It returns
// the projection, which is kept only if a watch of the kind is in use and the
// object is one that the index stores.
func (ix *Index) Observe(u *unstructured.Unstructured) (Object, error) {
	o, version, err := project(u, ix.opts.SecretKey)
	if err != nil {
		return Object{}, err
	}
	o.LabelLost = u.GetLabels()[OwnerLabel] != ix.opts.Owner
	ix.put(o, version, nil)
	return o, nil
}

// ObserveGone tells the index that the API server said an object does not
// exist. What it still hears of the object with that uid is old.
func (ix *Index) ObserveGone(ref stacks.Ref, uid types.UID) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g := ix.groups[ref.GroupKind()]
	if g == nil {
		return
	}
	n := name{ref.Namespace, ref.Name}
	if e := g.objects[n]; e != nil && e.UID() == uid {
		ix.drop(g, n, e)
		return
	}
	was := g.gone[n]
	g.gone[n] = grave{uid: uid, at: ix.opts.Clock.Now(), succeeded: was.succeeded && was.uid == uid}
}

// Succeeded reports whether a Job or a Pod was seen to run to its end well,
// also when its TTL has deleted it since.
func (ix *Index) Succeeded(ref stacks.Ref, uid types.UID) bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	g := ix.groups[ref.GroupKind()]
	if g == nil || uid == "" {
		return false
	}
	n := name{ref.Namespace, ref.Name}
	if e := g.objects[n]; e != nil && e.UID() == uid {
		return e.is(flagSucceeded)
	}
	return g.gone[n].uid == uid && g.gone[n].succeeded
}

// Subscribe calls f with the key of an owner whose objects changed in a way
// that matters, or of whose kinds the sync changed. Changes in quick succession
// are told once. f is called from one goroutine, that of all subscribers, and
// has to return; a slow one delays notifications, nothing else.
func (ix *Index) Subscribe(f func(ownerKey string)) (unsubscribe func()) {
	return ix.notify.subscribe(f)
}
