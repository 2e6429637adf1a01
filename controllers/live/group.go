package live

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// group is what the index holds of one kind, whatever the version. Its fields
// are guarded by Index.mu.
type group struct {
	gk      schema.GroupKind
	objects map[name]*entry
	watches map[watchKey]*watcher
	// gone are objects known not to exist any more: what comes late of them is old.
	gone map[name]grave
	// unconfirmed are hinted objects whose GET failed, and how.
	unconfirmed map[name]error
}

type grave struct {
	uid types.UID
	at  time.Time
	// until is set when the object lives on as nobody's: what is newer counts.
	until uint64
	// succeeded is true for a Job or a Pod that was seen to run to its end well.
	succeeded bool
}

// covers is true for what is old news of the object in the grave.
func (g grave) covers(uid types.UID, rv uint64) bool {
	return uid != "" && g.uid == uid && (g.until == 0 || rv <= g.until)
}

// group returns the group of a kind; it is made when it isn't there.
func (ix *Index) group(gk schema.GroupKind) *group {
	g := ix.groups[gk]
	if g == nil {
		g = &group{
			gk:          gk,
			objects:     map[name]*entry{},
			watches:     map[watchKey]*watcher{},
			gone:        map[name]grave{},
			unconfirmed: map[name]error{},
		}
		ix.groups[gk] = g
	}
	return g
}

func (g *group) ref(n name) stacks.Ref {
	return stacks.Ref{Group: g.gk.Group, Kind: g.gk.Kind, Namespace: n.namespace, Name: n.name}
}

func (g *group) synced(now time.Time, staleAfter time.Duration) error {
	for _, w := range g.watches {
		if len(w.users) == 0 && len(g.watches) > 1 {
			continue
		}
		if err := w.synced(now, staleAfter); err != nil {
			return err
		}
	}
	var first error // the same one each time
	for _, err := range g.unconfirmed {
		if first == nil || err.Error() < first.Error() {
			first = err
		}
	}
	if first == nil {
		return nil
	}
	return &SyncError{GroupKind: g.gk, Reason: Stale, Err: first}
}

// users are the owners that use the kind.
func (g *group) users() []string {
	var out []string
	for _, w := range g.watches {
		for u := range w.users {
			out = append(out, u)
		}
	}
	return out
}

// speaksFor reports whether the watch is the one to believe of an object whose
// fields we own in the given API version. In another version the same fields
// may have other paths: hashes of the two do not compare.
func (g *group) speaksFor(w *watcher, ownVersion string) bool {
	if len(g.watches) == 1 || w.key.gvk.GroupVersion().String() == ownVersion {
		return true
	}
	first := w
	for _, other := range g.watches {
		if other.key.gvk.GroupVersion().String() == ownVersion {
			return false
		}
		if other.key.gvk.Version < first.key.gvk.Version {
			first = other
		}
	}
	return first == w
}

// put stores what came of an object: from a watch, or, if that is nil, from a
// response. Older news than what is stored is dropped.
func (ix *Index) put(o Object, ownVersion string, w *watcher) {
	e := pack(&o, &ix.interned)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.putPacked(&o, e, ownVersion, w)
}

// putPacked is put of what was packed. The lock is held.
func (ix *Index) putPacked(o *Object, e *entry, ownVersion string, w *watcher) {
	ours := o.Mark.ID == o.Ref.ID()
	g := ix.groups[o.Ref.GroupKind()]
	if g == nil || (w != nil && (g.watches[w.key] != w || !g.speaksFor(w, ownVersion))) {
		return
	}
	n := name{ix.interned.get(o.Ref.Namespace), o.Ref.Name}
	old := g.objects[n]
	if old != nil && e.rv < old.rv || g.gone[n].covers(o.UID, e.rv) {
		return
	}
	same := old != nil && old.UID() == o.UID
	if !ours && !same {
		ix.stats.copies++
		if old != nil {
			ix.drop(g, n, old)
		}
		return
	}
	e.owner = ix.interned.get(o.Mark.Owner)
	if !ours {
		e.owner = old.owner
		e.set(flagMarkLost, true)
	}
	e.set(flagLabelLost, o.LabelLost)
	switch {
	case w != nil:
		e.round = w.round
	case same:
		e.round = old.round
		// Only what is newer than the hint refutes it.
		e.set(flagHinted, old.is(flagHinted) && e.rv == old.rv)
	}
	if !e.is(flagHinted) {
		ix.confirmed(g, n)
	}
	delete(g.gone, n)
	g.objects[n] = e
	if w != nil && (old == nil || old.owner != e.owner) {
		ix.arrive(g, n, e.owner)
	}
	// Of a first list every user of the kind is told at its end.
	switch quiet := w != nil && !w.listed; {
	case quiet:
	case old != nil && !old.matters(e):
		if e.ready != Current && e.message != old.message {
			ix.notify.murmur(e.owner)
		}
	case old == nil:
		ix.notify.mark(e.owner)
	default:
		ix.notify.mark(e.owner, old.owner) // at once: one owner is told once
	}
	if old != nil && old.owner != e.owner {
		ix.handOver(o.Ref)
	}
}

// hint notes that a watch or a list no longer has an object; a GET is to tell
// whether it is gone or has only lost its label. The lock is held.
func (ix *Index) hint(g *group, n name, uid types.UID, rv uint64) {
	e := g.objects[n]
	if e == nil || e.UID() != uid || rv < e.rv {
		return
	}
	e.rv = rv
	e.set(flagHinted, true)
	// The answer to our own request to delete it will tell.
	if ref := g.ref(n); ix.deleting[ref] != uid {
		ix.ask(ref)
	}
}

// ask queues the GET that confirms a hint. The lock is held.
func (ix *Index) ask(ref stacks.Ref) {
	if ix.ctx != nil {
		ix.confirms.Add(ref)
	}
}

// drop forgets an object that is gone. The lock is held.
func (ix *Index) drop(g *group, n name, e *entry) {
	delete(g.objects, n)
	ix.depart(g, n, e.owner)
	g.gone[n] = grave{uid: e.UID(), at: ix.opts.Clock.Now(), succeeded: e.is(flagSucceeded)}
	ix.confirmed(g, n)
	ix.notify.mark(e.owner)
	ix.handOver(g.ref(n))
}

// confirmed notes that nothing is open about an object. The lock is held.
func (ix *Index) confirmed(g *group, n name) {
	if _, was := g.unconfirmed[n]; !was {
		return
	}
	delete(g.unconfirmed, n)
	if len(g.unconfirmed) == 0 {
		ix.notify.mark(g.users()...)
	}
}

// unlisted hints at the objects that a finished list of a watch did not have.
// What is newer than the list is not judged by it. The lock is held.
func (ix *Index) unlisted(g *group, w *watcher, listed uint64) {
	var missing []name
	for n, e := range g.objects {
		if e.round != w.round && e.version == w.key.gvk.Version && e.rv <= listed {
			missing = append(missing, n)
		}
	}
	for _, n := range missing {
		ix.hint(g, n, g.objects[n].UID(), g.objects[n].rv)
	}
}
