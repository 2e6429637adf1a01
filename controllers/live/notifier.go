package live

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// notifier calls subscribers with the keys of marked owners. Marking an owner never blocks. An
// owner that is marked several times before its notification is notified once.
type notifier struct {
	mu    sync.Mutex
	dirty map[string]struct{}
	// delayed are the owners of objects of which only the message changed since the last
	// flushDelayed; delayedDue are those from before it.
	delayed, delayedDue map[string]struct{}
	subscribers         map[int]func(ownerKey string)
	nextID              int
	// wake has a capacity of one: further signals would be redundant.
	wake chan struct{}
	// changeLock can't be locked while a change is marking owners, so that an owner which
	// several parts of one change mark is notified once.
	changeLock sync.Locker
}

func newNotifier(changeLock sync.Locker) *notifier {
	return &notifier{dirty: map[string]struct{}{}, delayed: map[string]struct{}{}, subscribers: map[int]func(string){},
		wake: make(chan struct{}, 1), changeLock: changeLock}
}

func (n *notifier) mark(owners ...string) {
	n.mu.Lock()
	for _, o := range owners {
		if o != "" {
			n.dirty[o] = struct{}{}
			delete(n.delayed, o)
			delete(n.delayedDue, o)
		}
	}
	some := len(n.dirty) > 0
	n.mu.Unlock()
	if some {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

// markDelayed marks an owner at the second flushDelayed from now, unless it is marked before.
func (n *notifier) markDelayed(owner string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delayed[owner] = struct{}{}
}

// flushDelayed marks the owners that were delayed before the previous flushDelayed.
func (n *notifier) flushDelayed() {
	n.mu.Lock()
	due := slices.Collect(maps.Keys(n.delayedDue))
	n.delayedDue, n.delayed = n.delayed, map[string]struct{}{}
	n.mu.Unlock()
	n.mark(due...)
}

func (n *notifier) subscribe(f func(string)) (unsubscribe func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := n.nextID
	n.nextID++
	n.subscribers[id] = f
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.subscribers, id)
	}
}

func (n *notifier) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		n.changeLock.Lock()
		owners, fs := n.drain()
		n.changeLock.Unlock()
		for _, o := range owners {
			for _, f := range fs {
				f(o)
			}
		}
	}
}

func (n *notifier) drain() (owners []string, fs []func(string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	owners = slices.Sorted(maps.Keys(n.dirty))
	clear(n.dirty)
	return owners, slices.Collect(maps.Values(n.subscribers))
}
