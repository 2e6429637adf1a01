package handover

import (
	"maps"
	"math/rand/v2"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// planWait is an object that is no longer part of an install, and the other install whose plan is
// needed to decide whether another install claims the object.
type planWait struct {
	releasing releasingInstall
	objectID  string
	blocker   types.NamespacedName
}

// releasingInstall is an install that no longer claims an object.
type releasingInstall struct {
	name types.NamespacedName
	planScope
	// artifact is the digest of the artifact that it planned. It is empty for an install that is
	// being deleted.
	artifact string
}

// planWaits indexes waits by releasing install and object ID, by the install that they wait for,
// and by the hash of the object.
type planWaits struct {
	byReleasing map[types.NamespacedName]map[string]*planWait
	byBlocker   map[types.NamespacedName]map[*planWait]bool
	byObject    map[uint64]map[*planWait]bool
}

// put adds a wait. It replaces an earlier wait of the same install for the same object.
func (ws *planWaits) put(w *planWait) {
	if before := ws.byReleasing[w.releasing.name][w.objectID]; before != nil {
		ws.drop(before)
	}
	if ws.byReleasing[w.releasing.name] == nil {
		ws.byReleasing[w.releasing.name] = map[string]*planWait{}
	}
	ws.byReleasing[w.releasing.name][w.objectID] = w
	addToSet(ws.byBlocker, w.blocker, w)
	addToSet(ws.byObject, hashID(w.releasing.cluster, w.objectID), w)
}

func (ws *planWaits) drop(w *planWait) {
	delete(ws.byReleasing[w.releasing.name], w.objectID)
	if len(ws.byReleasing[w.releasing.name]) == 0 {
		delete(ws.byReleasing, w.releasing.name)
	}
	removeFromSet(ws.byBlocker, w.blocker, w)
	removeFromSet(ws.byObject, hashID(w.releasing.cluster, w.objectID), w)
}

// clear removes all waits of an install.
func (ws *planWaits) clear(install types.NamespacedName) {
	for _, w := range ws.byReleasing[install] {
		ws.drop(w)
	}
}

// blockedOn returns the waits for the plan of an install.
func (ws *planWaits) blockedOn(install types.NamespacedName) []*planWait {
	return slices.Collect(maps.Keys(ws.byBlocker[install]))
}

// forObject returns the waits for an object.
func (ws *planWaits) forObject(id uint64) []*planWait {
	return slices.Collect(maps.Keys(ws.byObject[id]))
}

func addToSet[K, V comparable](in map[K]map[V]bool, at K, v V) {
	if in[at] == nil {
		in[at] = map[V]bool{}
	}
	in[at][v] = true
}

func removeFromSet[K, V comparable](in map[K]map[V]bool, at K, v V) {
	delete(in[at], v)
	if len(in[at]) == 0 {
		delete(in, at)
	}
}

// findNewOwnerOrWait is like findNewOwner. In addition, it adds a wait if a plan is missing. The
// releasing install is enqueued when the wait is over. Only the name of newOwner may be read: the
// rest changes with events.
func (p *Plans) findNewOwnerOrWait(r releasingInstall, id string) (newOwner, pending *installPlan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	newOwner, pending = p.findNewOwner(r, id)
	if pending != nil {
		p.waits.put(&planWait{releasing: r, objectID: id, blocker: pending.name})
		copied := *pending // the original changes with events
		pending = &copied
	}
	return newOwner, pending
}

// addWait adds a wait, which also ends when another install claims the object.
func (p *Plans) addWait(w *planWait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits.put(w)
}

// ClearWaits removes all waits of an install.
func (p *Plans) ClearWaits(install types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits.clear(install)
}

// findNewOwner returns the install that claims an object which another install releases, or the
// install whose plan is needed to decide that. If both are nil, no install claims the object. The
// caller holds the lock.
func (p *Plans) findNewOwner(r releasingInstall, id string) (newOwner, pending *installPlan) {
	for _, m := range p.byID[hashID(r.cluster, id)] {
		isSuccessor := m.takesOverFrom == r.name
		if m.name == r.name || m.claimsNothing || m.cluster != r.cluster || !isSuccessor && m.source != r.source {
			continue
		}
		if isSuccessor || r.artifact == "" || m.artifact == r.artifact {
			return m, nil
		}
	}
	for m := range p.successors[r.name] {
		if m.artifact == unplanned && m.name != r.name && m.cluster == r.cluster && m.couldClaim(id) {
			return nil, m
		}
	}
	if r.artifact == "" { // a deleted install waits only for its successors
		return nil, nil
	}
	for artifact, g := range p.bySource[r.planScope] {
		if artifact == r.artifact {
			continue
		}
		// The start is random, so that not all releasing installs wait for the same install.
		for i, from := 0, rand.IntN(len(g.installs)); i < len(g.installs); i++ {
			m := g.installs[(from+i)%len(g.installs)]
			// For a successor any plan is sufficient.
			known := m.takesOverFrom == r.name && m.artifact != unplanned
			if m.name != r.name && !known && m.couldClaim(id) {
				return nil, m
			}
		}
	}
	return nil, nil
}

// couldClaim reports whether the install has objects in the same location as the object, or whether
// its locations are unknown.
func (m *installPlan) couldClaim(id string) bool {
	at := m.locations()
	return at == nil || slices.Contains(at, objectLocation(id))
}

// reviewWaits returns the installs that must be reconciled because of a change that affects some
// waits. An install that needs many plans, one after the other, is not enqueued for each of them.
// It is enqueued if it now waits for an install that may not make a plan soon, because its message
// names that install.
func (p *Plans) reviewWaits(affected []*planWait) []types.NamespacedName {
	woken := map[types.NamespacedName]bool{}
	for _, w := range affected {
		if p.waits.byReleasing[w.releasing.name][w.objectID] != w {
			continue // removed in the meantime
		}
		_, pending := p.findNewOwner(w.releasing, w.objectID)
		if pending != nil && pending.notReady == "" {
			p.waits.put(&planWait{releasing: w.releasing, objectID: w.objectID, blocker: pending.name})
			continue
		}
		woken[w.releasing.name] = true
	}
	for name := range woken {
		p.waits.clear(name)
	}
	return slices.Collect(maps.Keys(woken))
}
