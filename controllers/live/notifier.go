package live

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// notifier tells subscribers which owners to look at. Marking an owner never
// waits; an owner that is marked again before it was told is told once.
type notifier struct {
	mu    sync.Mutex
	dirty map[string]struct{}
	// recent and earlier are owners to whom an object has only new words to say:
	// since the last turn, and before it.
	recent, earlier map[string]struct{}
	subscribers     map[int]func(ownerKey string)
	next            int
	// wake has room for one: more would say the same.
	wake chan struct{}
	// marking is locked out while there is more to mark of the same change: an
	// owner that is marked by several of its parts is told once.
	marking sync.Locker
}

func newNotifier(marking sync.Locker) *notifier {
	return &notifier{dirty: map[string]struct{}{}, subscribers: map[int]func(string){}, wake: make(chan struct{}, 1), marking: marking}
}

func (n *notifier) mark(owners ...string) {
	n.mu.Lock()
	for _, o := range owners {
		if o != "" {
			n.dirty[o] = struct{}{}
			delete(n.recent, o)
			delete(n.earlier, o)
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

// murmur marks an owner at the turn after the next, unless it is marked before.
func (n *notifier) murmur(owner string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.recent == nil {
		n.recent = map[string]struct{}{}
	}
	n.recent[owner] = struct{}{}
}

// turn marks those who have waited for a whole turn.
func (n *notifier) turn() {
	n.mu.Lock()
	due := slices.Collect(maps.Keys(n.earlier))
	n.earlier, n.recent = n.recent, nil
	n.mu.Unlock()
	n.mark(due...)
}

func (n *notifier) subscribe(f func(string)) (unsubscribe func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := n.next
	n.next++
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
		n.marking.Lock()
		owners, fs := n.take()
		n.marking.Unlock()
		for _, o := range owners {
			for _, f := range fs {
				f(o)
			}
		}
	}
}

func (n *notifier) take() (owners []string, fs []func(string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for o := range n.dirty {
		owners = append(owners, o)
	}
	clear(n.dirty)
	slices.Sort(owners)
	for _, f := range n.subscribers {
		fs = append(fs, f)
	}
	return owners, fs
}
