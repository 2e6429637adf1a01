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

// Index holds the projections of the managed objects of one cluster. Its methods are safe for
// concurrent use and may be called before Start; the watches run only after Start.
type Index struct {
	opts      Options
	client    rest.Interface
	notify    *notifier
	interned  interner
	listSlots chan struct{}

	mu      sync.RWMutex
	groups  map[schema.GroupKind]*group
	awaited awaitedObjects
	// strays are objects, by owner, that watches delivered and that the owner does not know
	// or was not asked about yet; see Strays.
	strays map[string][]objectLocation
	// contributed watches the objects that owners contribute to.
	contributed *ObjectWatcher[string, ContributedObject]
	// deleting are the objects with a deletion request in flight.
	deleting map[stacks.Ref]types.UID
	// stats has only the counters.
	stats Stats
	// ctx is nil unless the index runs.
	ctx          context.Context
	started      bool
	confirmQueue workqueue.TypedRateLimitingInterface[stacks.Ref]
	wg           sync.WaitGroup
}

// errAlreadyStarted is the error of a second Start.
var errAlreadyStarted = errors.New("live index: already started")

// New returns an index of the cluster of cfg. New copies cfg and drops its rate limits and timeout;
// Options bound the requests of the index.
func New(cfg *rest.Config, o Options) (*Index, error) {
	if o.OwnerID == "" {
		return nil, errors.New("live index: Options.OwnerID is empty: set the id of the installation")
	}
	o.setDefaults()
	c := dynamic.ConfigFor(cfg)
	c.GroupVersion = nil
	c.APIPath = "/"
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil
	// A timeout of the client would also end the watches.
	c.Timeout = 0
	c.WarningHandler = rest.NoWarnings{}
	c.WarningHandlerWithContext = nil
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("live index: %w", err)
	}
	ix := &Index{
		opts:      o,
		client:    client,
		listSlots: make(chan struct{}, o.ConcurrentLists),
		groups:    map[schema.GroupKind]*group{},
		awaited: awaitedObjects{ownersByRef: map[stacks.Ref]map[string]struct{}{},
			refsByOwner: map[string][]stacks.Ref{}},
		strays:   map[string][]objectLocation{},
		deleting: map[stacks.Ref]types.UID{},
	}
	ix.notify = newNotifier(ix.mu.RLocker())
	ix.contributed, err = NewObjectWatcher[string](cfg, ProjectContributions)
	if err != nil {
		return nil, fmt.Errorf("live index: %w", err)
	}
	ix.contributed.Subscribe(func(ownerKey string) { ix.notify.mark(ownerKey) })
	return ix, nil
}

// Start runs the watches until ctx ends and returns nil after all goroutines have ended. It fails
// if it was called before.
func (ix *Index) Start(ctx context.Context) error {
	ix.mu.Lock()
	if ix.started {
		ix.mu.Unlock()
		return errAlreadyStarted
	}
	ix.started = true
	ix.ctx = ctx
	ix.confirmQueue = ix.newConfirmQueue()
	ix.wg.Go(func() { ix.notify.run(ctx) })
	ix.wg.Go(func() { ix.runCleanup(ctx) })
	ix.wg.Go(func() { _ = ix.contributed.Start(ctx) })
	for range ix.opts.ConcurrentConfirms {
		ix.wg.Go(func() { ix.runConfirmWorker(ctx) })
	}
	for _, g := range ix.groups {
		for _, w := range g.watches {
			ix.startWatcher(w)
		}
	}
	ix.mu.Unlock()

	<-ctx.Done()
	ix.mu.Lock()
	ix.ctx = nil
	ix.confirmQueue.ShutDown()
	ix.mu.Unlock()
	ix.wg.Wait()
	return nil
}

// startWatcher runs a watcher if the index runs. The caller holds the lock.
func (ix *Index) startWatcher(w *watcher) {
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

// SetOwnerKinds replaces the set of kinds that an owner uses; an empty set releases all. The index
// keeps watching a kind without users for Options.IdleGracePeriod, unless the kind is gone. In an
// outage it keeps the watch, because an owner may lose its kinds until discovery answers again.
func (ix *Index) SetOwnerKinds(ownerKey string, kinds []*meta.RESTMapping) {
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
			ix.startWatcher(w)
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
		ix.endUnusedWatches(g, func(w *watcher) bool { return w.reason == NotServed })
	}
}

// Get returns the projection of an object; false if the index has no such object with a mark. The
// answer is reliable only if Synced returns nil for the kind.
func (ix *Index) Get(ref stacks.Ref) (Object, bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	g, n, e := ix.find(ref)
	if e == nil {
		return Object{}, false
	}
	return e.unpack(g.gk, n), true
}

// Synced returns nil if the index of a kind is up to date, and a *SyncError otherwise.
func (ix *Index) Synced(gk schema.GroupKind) error {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	g := ix.groups[gk]
	if g == nil {
		return &SyncError{GroupKind: gk, Reason: NotWatched}
	}
	return g.synced(ix.opts.Clock.Now(), ix.opts.StaleAfter)
}

// Observe adds an object from a response of the API server to an apply or a GET. The index keeps
// the newer of this version and its own. Observe returns the projection; the index stores it only
// if the kind is watched and the mark has the id of the object.
func (ix *Index) Observe(u *unstructured.Unstructured) (Object, error) {
	o, version, err := project(u, ix.opts.SecretKey)
	if err != nil {
		return Object{}, err
	}
	o.LabelLost = u.GetLabels()[OwnerLabel] != ix.opts.OwnerID
	ix.put(o, version, nil)
	return o, nil
}

// ObserveGone records that an object with that uid does not exist, according to the API server. The
// index ignores late events of it.
func (ix *Index) ObserveGone(ref stacks.Ref, uid types.UID) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g, n, e := ix.find(ref)
	if g == nil {
		return
	}
	if e.hasUID(uid) {
		ix.drop(g, n, e)
		return
	}
	previous := g.tombstones[n]
	g.tombstones[n] = tombstone{uid: uid, deletedAt: ix.opts.Clock.Now(), succeeded: previous.succeeded &&
		previous.uid == uid}
}

// Succeeded reports whether a Job or a Pod completed successfully, also for a few minutes after the
// TTL controller deleted it.
func (ix *Index) Succeeded(ref stacks.Ref, uid types.UID) bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	g, n, e := ix.find(ref)
	if g == nil || uid == "" {
		return false
	}
	if e.hasUID(uid) {
		return e.is(flagSucceeded)
	}
	return g.tombstones[n].uid == uid && g.tombstones[n].succeeded
}

// Subscribe registers a function that is called with the key of an owner after a relevant change of
// its objects, or after a change of the sync state of its kinds. Changes in quick succession are
// merged into one call. One goroutine calls the functions of all subscribers: a slow function
// delays notifications, but nothing else.
func (ix *Index) Subscribe(f func(ownerKey string)) (unsubscribe func()) {
	return ix.notify.subscribe(f)
}

// Wake makes the watches of a kind retry immediately and resets their backoff. Call it when the
// CRD or APIService of the kind changed, or when the controller got permissions.
func (ix *Index) Wake(gk schema.GroupKind) {
	ix.wakeKinds(func(kind schema.GroupKind) bool { return kind == gk })
}

// WakeGroup calls Wake for each watched kind of an API group.
func (ix *Index) WakeGroup(group string) {
	ix.wakeKinds(func(kind schema.GroupKind) bool { return kind.Group == group })
}

// WakeAll calls Wake for each watched kind. Call it when the API server is reachable again.
func (ix *Index) WakeAll() { ix.wakeKinds(func(schema.GroupKind) bool { return true }) }

func (ix *Index) wakeKinds(wanted func(schema.GroupKind) bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	for gk, g := range ix.groups {
		if !wanted(gk) {
			continue
		}
		for _, w := range g.watches {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
		for n := range g.unconfirmed {
			ref := g.ref(n)
			ix.confirmQueue.Forget(ref)
			ix.confirmQueue.Add(ref)
		}
	}
}
