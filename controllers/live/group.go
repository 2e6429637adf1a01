package live

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// group holds the index of one kind, in all its API versions. Index.mu guards its fields.
type group struct {
	gk      schema.GroupKind
	objects map[objectKey]*entry
	watches map[watchKey]*watcher
	// tombstones are objects that no longer exist or were released. Late events and responses
	// of them are ignored.
	tombstones map[objectKey]tombstone
	// unconfirmed holds the errors of hinted objects whose GET failed.
	unconfirmed map[objectKey]error
}

// tombstone remembers an object that was deleted or released.
type tombstone struct {
	uid       types.UID
	deletedAt time.Time
	// releasedVersion is set if the object still exists without an owner: versions newer than
	// this one are stored again.
	releasedVersion uint64
	// succeeded is true for a Job or a Pod that completed successfully.
	succeeded bool
}

// covers reports whether a version of an object is outdated by the tombstone.
func (g tombstone) covers(uid types.UID, rv uint64) bool {
	return uid != "" && g.uid == uid && (g.releasedVersion == 0 || rv <= g.releasedVersion)
}

// group returns the group of a kind and creates it if necessary.
func (ix *Index) group(gk schema.GroupKind) *group {
	g := ix.groups[gk]
	if g == nil {
		g = &group{
			gk:          gk,
			objects:     map[objectKey]*entry{},
			watches:     map[watchKey]*watcher{},
			tombstones:  map[objectKey]tombstone{},
			unconfirmed: map[objectKey]error{},
		}
		ix.groups[gk] = g
	}
	return g
}

// find returns the group of an object's kind, the key and the entry of the object. The group is nil
// if no owner uses the kind, the entry if the index has no such object. The caller holds the lock.
func (ix *Index) find(ref stacks.Ref) (g *group, n objectKey, e *entry) {
	n = objectKey{ref.Namespace, ref.Name}
	if g = ix.groups[ref.GroupKind()]; g != nil {
		e = g.objects[n]
	}
	return g, n, e
}

func (g *group) ref(n objectKey) stacks.Ref {
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
	var first error // deterministic: the error with the lowest text
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

// users returns the owners that use the kind. An owner of several versions occurs several times.
func (g *group) users() []string {
	var out []string
	for _, w := range g.watches {
		for u := range w.users {
			out = append(out, u)
		}
	}
	return out
}

// isAuthoritative reports whether the index stores an object from this watch, given the API version
// of the object's managedFields entry of FieldManager. In another version the same fields may have
// other paths, so that the hashes are not comparable. Without a watch of that version, the watch of
// the lowest version is authoritative.
func (g *group) isAuthoritative(w *watcher, ownVersion string) bool {
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

// put stores a projection from a watch, or from a response if w is nil. A version older than the
// stored one is dropped.
func (ix *Index) put(o Object, ownVersion string, w *watcher) {
	e := pack(&o, &ix.interned)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.putPacked(&o, e, ownVersion, w)
}

// putPacked is put for a packed projection. The caller holds the lock.
func (ix *Index) putPacked(o *Object, e *entry, ownVersion string, w *watcher) {
	ours := o.Mark.ID == o.Ref.ID()
	g := ix.groups[o.Ref.GroupKind()]
	if g == nil || (w != nil && (g.watches[w.key] != w || !g.isAuthoritative(w, ownVersion))) {
		return
	}
	n := objectKey{ix.interned.intern(o.Ref.Namespace), o.Ref.Name}
	old := g.objects[n]
	if old != nil && e.resourceVersion < old.resourceVersion || g.tombstones[n].covers(o.UID, e.resourceVersion) {
		return
	}
	same := old.hasUID(o.UID)
	if !ours && !same {
		ix.stats.Copies++
		if old != nil {
			ix.drop(g, n, old)
		}
		return
	}
	e.owner = ix.interned.intern(o.Mark.Owner)
	if !ours {
		e.owner = old.owner
		e.set(flagMarkLost, true)
	}
	e.set(flagLabelLost, o.LabelLost)
	switch {
	case w != nil:
		e.listRound = w.listRound
	case same:
		e.listRound = old.listRound
		// Only a version newer than the hint clears it.
		e.set(flagHinted, old.is(flagHinted) && e.resourceVersion == old.resourceVersion)
	}
	if !e.is(flagHinted) {
		ix.clearUnconfirmed(g, n)
	}
	delete(g.tombstones, n)
	g.objects[n] = e
	if old == nil && w != nil || old != nil && old.owner != e.owner { // also handed over by a request of ours
		ix.addStray(g, n, e.owner)
	}
	// At the end of the first list, every user of the kind is notified.
	switch firstList := w != nil && !w.listed; {
	case firstList:
	case old != nil && !old.differsForOwner(e):
		if e.readiness != Current && e.message != old.message {
			ix.notify.markDelayed(e.owner)
		}
	case old == nil:
		ix.notify.mark(e.owner)
	default:
		ix.notify.mark(e.owner, old.owner) // in one call, so that one owner is notified once
	}
	// Several owners may use a CustomResourceDefinition that one of them has.
	if old != nil && old.owner != e.owner || o.Serves != nil && (old == nil || old.differsForOwner(e)) {
		ix.notifyAwaiting(o.Ref)
	}
}

// hint records that a watch or a list no longer contains an object. A GET has to confirm whether
// the object is gone or only lost its label. The caller holds the lock.
func (ix *Index) hint(g *group, n objectKey, uid types.UID, rv uint64) {
	e := g.objects[n]
	if !e.hasUID(uid) || rv < e.resourceVersion {
		return
	}
	e.resourceVersion = rv
	e.set(flagHinted, true)
	// While the controller deletes the object itself, the response decides.
	if ref := g.ref(n); ix.deleting[ref] != uid {
		ix.enqueueConfirm(ref)
	}
}

// enqueueConfirm queues the GET that confirms a hint. The caller holds the lock.
func (ix *Index) enqueueConfirm(ref stacks.Ref) {
	if ix.ctx != nil {
		ix.confirmQueue.Add(ref)
	}
}

// drop removes an object that is gone and leaves a tombstone. The caller holds the lock.
func (ix *Index) drop(g *group, n objectKey, e *entry) {
	delete(g.objects, n)
	ix.removeStray(g, n, e.owner)
	g.tombstones[n] = tombstone{uid: e.UID(), deletedAt: ix.opts.Clock.Now(), succeeded: e.is(flagSucceeded)}
	ix.clearUnconfirmed(g, n)
	ix.notify.mark(e.owner)
	ix.notifyAwaiting(g.ref(n))
}

// clearUnconfirmed removes the failed GET of an object. The caller holds the lock.
func (ix *Index) clearUnconfirmed(g *group, n objectKey) {
	if _, found := g.unconfirmed[n]; !found {
		return
	}
	delete(g.unconfirmed, n)
	if len(g.unconfirmed) == 0 {
		ix.notify.mark(g.users()...)
	}
}

// hintUnlisted adds a hint to each object that a finished list did not contain, unless the object
// is newer than the list or stored in another API version. The caller holds the lock.
func (ix *Index) hintUnlisted(g *group, w *watcher, listVersion uint64) {
	for n, e := range g.objects {
		if e.listRound != w.listRound && e.version == w.key.gvk.Version && e.resourceVersion <= listVersion {
			ix.hint(g, n, e.UID(), e.resourceVersion)
		}
	}
}
