package live

import (
	"context"
	"time"
	"unsafe"
)

// graveFor is how long a deleted object's uid is remembered: longer than a
// response or an event can be late.
const graveFor = 5 * time.Minute

// tidy ends what is no longer used and tells of what became stale, and of new
// words about what is not ready.
func (ix *Index) tidy(ctx context.Context) {
	t := ix.opts.Clock.NewTicker(max(min(ix.opts.StaleAfter, ix.opts.Grace, graveFor)/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C():
			ix.tidyOnce()
		}
	}
}

func (ix *Index) tidyOnce() {
	ix.notify.turn()
	ix.mu.Lock()
	defer ix.mu.Unlock()
	now := ix.opts.Clock.Now()
	for gk, g := range ix.groups {
		for n, grave := range g.gone {
			if now.Sub(grave.at) >= graveFor {
				delete(g.gone, n)
			}
		}
		ended := false
		for key, w := range g.watches {
			w.tell()
			if len(w.users) > 0 || now.Sub(w.idleSince) < ix.opts.Grace {
				continue
			}
			w.end()
			delete(g.watches, key)
			ended = true
		}
		switch {
		case len(g.watches) == 0:
			delete(ix.groups, gk)
		case ended:
			ix.anew(g)
		}
	}
}

// anew begins the watches of a kind again: another version of it is watched no
// more, and its objects are theirs to tell of now. The lock is held.
func (ix *Index) anew(g *group) {
	for key, w := range g.watches {
		w.end()
		next := newWatcher(ix, key)
		next.users, next.idleSince, next.round, next.told = w.users, w.idleSince, w.round, w.told
		g.watches[key] = next
		ix.launch(next)
	}
}

type counters struct {
	lists, confirms, copies uint64
}

// Stats of an index.
type Stats struct {
	// Objects that are stored, and an estimate of the memory that they take.
	Objects, Bytes int
	// Watches that there are, and how many of them the index can't vouch for.
	Watches, Unsynced int
	// Lists that were begun, GETs that confirmed a hint, and objects that had
	// the label but not a mark of their own, since the index was made.
	Lists, Confirms, Copies uint64
}

// Stats returns the index's numbers. It takes time in proportion to the objects.
func (ix *Index) Stats() Stats {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s := Stats{Lists: ix.stats.lists, Confirms: ix.stats.confirms, Copies: ix.stats.copies}
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
			s.Bytes += e.bytes(n)
		}
		s.Bytes += len(g.gone) * int(unsafe.Sizeof(name{})+unsafe.Sizeof(grave{}))
	}
	return s
}
