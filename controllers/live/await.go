package live

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// awaitedObjects holds the objects that owners wait for until other owners release them.
type awaitedObjects struct {
	ownersByRef map[stacks.Ref]map[string]struct{}
	refsByOwner map[string][]stacks.Ref
}

// SetAwaited replaces the set of objects that an owner waits for until no other owner has them. The
// owner is notified when such an object is gone or has another owner; a CustomResourceDefinition,
// which the owner may use, also when it is created or changes. The index has no events of objects
// without a mark.
func (ix *Index) SetAwaited(ownerKey string, refs []stacks.Ref) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	a := &ix.awaited
	for _, ref := range a.refsByOwner[ownerKey] {
		delete(a.ownersByRef[ref], ownerKey)
		if len(a.ownersByRef[ref]) == 0 {
			delete(a.ownersByRef, ref)
		}
	}
	delete(a.refsByOwner, ownerKey)
	if len(refs) == 0 {
		return
	}
	a.refsByOwner[ownerKey] = refs
	for _, ref := range refs {
		if a.ownersByRef[ref] == nil {
			a.ownersByRef[ref] = map[string]struct{}{}
		}
		a.ownersByRef[ref][ownerKey] = struct{}{}
	}
}

// notifyAwaiting notifies the owners that wait for an object after its owner released it. The
// caller holds the lock.
func (ix *Index) notifyAwaiting(ref stacks.Ref) {
	for owner := range ix.awaited.ownersByRef[ref] {
		ix.notify.mark(owner)
	}
}

// BeginDelete announces a delete request for an object. Until the caller calls answered, the index
// does not confirm hints of that object, because the response shows whether it is gone.
func (ix *Index) BeginDelete(ref stacks.Ref, uid types.UID) (answered func()) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.deleting[ref] = uid
	return func() {
		ix.mu.Lock()
		defer ix.mu.Unlock()
		delete(ix.deleting, ref)
		if _, _, e := ix.find(ref); e.hasUID(uid) && e.is(flagHinted) {
			ix.enqueueConfirm(ref)
		}
	}
}

// ObserveReleased records that an object exists without our mark from a resource version on. The
// index ignores events of versions up to this one. If an owner marks the object later, the index
// stores it again.
func (ix *Index) ObserveReleased(ref stacks.Ref, uid types.UID, resourceVersion string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	g, n, e := ix.find(ref)
	if g == nil {
		return
	}
	if e.hasUID(uid) {
		ix.drop(g, n, e)
	}
	g.tombstones[n] = tombstone{uid: uid, deletedAt: ix.opts.Clock.Now(),
		releasedVersion: parseResourceVersion(resourceVersion)}
}
