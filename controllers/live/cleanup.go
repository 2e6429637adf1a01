package live

import (
	"context"
	"time"
	"unsafe"
)

// tombstoneTTL is how long the uid of a deleted object is remembered: longer than the delay of a
// response or an event.
const tombstoneTTL = 5 * time.Minute

// runCleanup periodically stops unused watches, removes expired tombstones, and notifies users of
// watches that became stale and of changed messages of objects that are not ready.
func (ix *Index) runCleanup(ctx context.Context) {
	t := ix.opts.Clock.NewTicker(max(min(ix.opts.StaleAfter, ix.opts.IdleGracePeriod, tombstoneTTL)/4,
		time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C():
			ix.cleanup()
		}
	}
}

func (ix *Index) cleanup() {
	ix.notify.flushDelayed()
	ix.mu.Lock()
	defer ix.mu.Unlock()
	now := ix.opts.Clock.Now()
	for _, g := range ix.groups {
		for n, t := range g.tombstones {
			if now.Sub(t.deletedAt) >= tombstoneTTL {
				delete(g.tombstones, n)
			}
		}
		for _, w := range g.watches {
			w.notifyUsers()
		}
		ix.endUnusedWatches(g, func(w *watcher) bool { return now.Sub(w.idleSince) >= ix.opts.IdleGracePeriod })
	}
}

// endUnusedWatches ends the watches of a kind that have no users, and that the function selects.
// The caller holds the lock.
func (ix *Index) endUnusedWatches(g *group, selects func(*watcher) bool) {
	ended := false
	for key, w := range g.watches {
		if len(w.users) == 0 && selects(w) {
			w.stop()
			delete(g.watches, key)
			ended = true
		}
	}
	switch {
	case len(g.watches) == 0:
		delete(ix.groups, g.gk)
	case ended:
		ix.restartWatches(g)
	}
}

// restartWatches restarts the watches of a kind after the watch of another version ended, because
// the remaining watches are now authoritative for its objects. The caller holds the lock.
func (ix *Index) restartWatches(g *group) {
	for key, w := range g.watches {
		w.stop()
		next := newWatcher(ix, key)
		next.users, next.idleSince, next.listRound, next.notifiedReason = w.users, w.idleSince, w.listRound,
			w.notifiedReason
		g.watches[key] = next
		ix.startWatcher(next)
	}
}

// Stats are statistics of an index.
type Stats struct {
	// Objects is the number of stored objects, Bytes an estimate of their memory.
	Objects, Bytes int
	// Watches is the number of watches, Unsynced the number of those that are not synced.
	Watches, Unsynced int
	// Lists counts started lists, Confirms counts GETs that confirmed a hint, and Copies
	// counts objects with the label but without their own mark. All count from New on.
	Lists, Confirms, Copies uint64
}

// Stats returns the statistics of the index. Its duration is proportional to the number of objects.
func (ix *Index) Stats() Stats {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s := ix.stats
	now := ix.opts.Clock.Now()
	for _, g := range ix.groups {
		s.Objects += len(g.objects)
		s.Watches += len(g.watches)
		for _, w := range g.watches {
			if w.synced(now, ix.opts.StaleAfter) != nil {
				s.Unsynced++
			}
		}
		for n, e := range g.objects {
			s.Bytes += e.estimatedBytes(n)
		}
		s.Bytes += len(g.tombstones) * int(unsafe.Sizeof(objectKey{})+unsafe.Sizeof(tombstone{}))
	}
	return s
}
