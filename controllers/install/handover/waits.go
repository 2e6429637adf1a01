package handover

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// planWait is an object that is no longer part of an install, and the other install whose plan is
// needed to decide whether another install claims the object. blocker is empty if no plan is
// missing: the wait ends when an install claims the object.
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
	// serves is what the CustomResourceDefinition that it releases serves; nil if that is unknown.
	serves *stacks.ServedKind
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

// decision is what happens to an object that an install releases. The zero value means that no
// install claims the object.
type decision struct {
	// newOwner claims the object.
	newOwner *installPlan
	// pending is the install whose plan is needed to decide.
	pending *installPlan
	// left is true if the object stays without a wait for pending: pending cannot plan for its own
	// reasons, or waits for the releasing install itself.
	left bool
	// until is the time at which the wait for pending ends; zero if it has no end.
	until time.Time
}

// decideAndWatch decides about an object. If there is no new owner, it adds a wait: the releasing
// install is enqueued when the decision may have changed. Only the names of the installs may be
// read from the result: the rest changes with events.
func (p *Plans) decideAndWatch(r releasingInstall, id string, ignored ignoredFunc) decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.decide(r, id, ignored)
	switch {
	case d.pending != nil:
		p.waits.put(&planWait{releasing: r, objectID: id, blocker: d.pending.name})
		copied := *d.pending // the original changes with events
		d.pending = &copied
	case d.newOwner == nil:
		p.waits.put(&planWait{releasing: r, objectID: id}) // it may be claimed before it is removed
	}
	return d
}

// awaitUser returns an install that uses a CustomResourceDefinition; nil if there is none. The
// releasing install is enqueued when that install no longer does, or may receive it.
func (p *Plans) awaitUser(r releasingInstall, id string) *installPlan {
	p.mu.Lock()
	defer p.mu.Unlock()
	user := p.findClaimant(r, id, noneIgnored)
	if user == nil {
		return nil
	}
	p.waits.put(&planWait{releasing: r, objectID: id, blocker: user.name})
	copied := *user // the original changes with events
	return &copied
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

// ignoredFunc reports whether the claim of an install to an object does not count.
type ignoredFunc func(id string, claimant *installPlan) bool

// findClaimant returns the install that has planned an object which another install releases: one
// that takes over from it, or else one of its source, or else one of its namespace. It returns nil
// if there is none. The plan of an install of the same source counts if it is of the same artifact,
// or if the install cannot render that artifact. A CustomResourceDefinition may go to any install
// of the cluster that can use it as it is, and goes to another one of the namespace, or to one that
// is suspended, only if there is no such install. One that takes over may change it.
func (p *Plans) findClaimant(r releasingInstall, id string, ignored ignoredFunc) (best *installPlan) {
	bestRank, definition, hash := 0, stacks.IsDefinition(id), hashID(r.cluster, id)
	for _, m := range p.byID[hash] {
		rank, usable := 0, m.canUse(hash, r.serves)
		switch {
		case m.name == r.name || m.claimsNothing || m.cluster != r.cluster || ignored(id, m):
		case m.takesOverFrom == r.name:
			rank = 4
		case m.name.Namespace != r.namespace && definition && usable:
			rank = 1
		case m.name.Namespace != r.namespace:
		case m.source != r.source:
			rank = 2
		case r.artifact == "" || m.artifact == r.artifact || m.failedArtifact == r.artifact:
			rank = 3
		}
		if definition && rank > 0 && !m.suspended {
			rank += 4
		}
		if definition && rank > 0 && (usable || m.takesOverFrom == r.name) {
			rank += 8
		}
		if rank > bestRank {
			best, bestRank = m, rank
		}
	}
	return best
}

// decide returns what happens to an object that an install releases. The caller holds the lock.
func (p *Plans) decide(r releasingInstall, id string, ignored ignoredFunc) (d decision) {
	if m := p.findClaimant(r, id, ignored); m != nil {
		failed := r.artifact != "" && m.failedArtifact == r.artifact && m.artifact != r.artifact
		switch {
		case m.suspended: // it could not record the object
			return decision{pending: m}
		case failed: // it claimed the object before, and cannot be planned now
			return decision{pending: m, left: true}
		}
		return decision{newOwner: m}
	}
	at, hash := objectLocation(id), hashID(r.cluster, id)
	for m := range p.successors[r.name] {
		if (m.artifact == unplanned || m.provisional) && m.name != r.name && m.cluster == r.cluster &&
			m.couldClaim(at, hash) {
			d = p.decidePending(r, m, m.artifact == unplanned && m.failedArtifact != "")
			if d.pending == nil {
				d = decision{pending: m, left: true} // a successor may claim anything
			}
			if !d.left {
				return d
			}
		}
	}
	if r.artifact == "" { // a deleted install waits only for its successors
		return d
	}
	for m := range p.provisional[r.planScope] {
		if m.artifact == r.artifact && m.name != r.name && m.couldClaim(at, hash) {
			if d = p.decidePending(r, m, false); !d.left {
				return d
			}
		}
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
			if m.name == r.name || known || !m.couldClaim(at, hash) {
				continue
			}
			pending := p.decidePending(r, m, m.failedArtifact == r.artifact)
			if pending.pending != nil && !pending.left {
				return pending
			}
			if pending.left {
				d = pending
			}
		}
	}
	return d
}

// decidePending returns the decision about an install without a final plan of the artifact. An
// install that cannot render the artifact claims nothing more than findClaimant knows, if only a
// user can fix that. If it never had a plan or an object, or if the error may end by itself, it
// gets its timeout. Nobody waits for an install that waits for the releasing one.
func (p *Plans) decidePending(r releasingInstall, m *installPlan, failed bool) decision {
	switch until := m.failedSince.Add(m.timeout); {
	case !failed:
		return decision{pending: m, left: m.provisional && p.waitsFor(m, r.name)}
	case m.definite && len(m.ids) > 0:
		return decision{}
	case p.clock.Now().Before(until):
		return decision{pending: m, until: until}
	default:
		return decision{pending: m, left: true}
	}
}

// waitsFor reports whether an install may wait for another one, directly or through further
// installs: for dependencies, for installs that it applied, and for the plans of others.
func (p *Plans) waitsFor(m *installPlan, on types.NamespacedName) bool {
	seen := map[types.NamespacedName]bool{}
	var walk func(types.NamespacedName) bool
	walk = func(at types.NamespacedName) bool {
		if at == on {
			return true
		}
		if seen[at] || at.Name == "" {
			return false
		}
		seen[at] = true
		if in := p.installs[at]; in != nil && slices.ContainsFunc(in.dependsOn, walk) {
			return true
		}
		for child := range p.children[at] {
			if walk(child.name) {
				return true
			}
		}
		for _, w := range p.waits.byReleasing[at] {
			if walk(w.blocker) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(m.dependsOn, walk)
}

// canUse reports whether a CustomResourceDefinition serves what the install planned.
func (m *installPlan) canUse(id uint64, serves *stacks.ServedKind) bool {
	wanted := m.needs[id]
	return wanted == nil || serves == nil || serves.Lacks(wanted) == ""
}

func noneIgnored(string, *installPlan) bool { return false }

// couldClaim reports whether the install has objects in the location of an object, whether its
// locations are unknown, or whether it claims the object in its last plan.
func (m *installPlan) couldClaim(location string, id uint64) bool {
	all := m.locations()
	_, claimed := slices.BinarySearch(m.ids, id)
	return all == nil || slices.Contains(all, location) || claimed
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
		d := p.decide(w.releasing, w.objectID, noneIgnored)
		if d.pending != nil && !d.pending.suspended && !d.left && d.until.IsZero() {
			p.waits.put(&planWait{releasing: w.releasing, objectID: w.objectID, blocker: d.pending.name})
			continue
		}
		woken[w.releasing.name] = true
	}
	for name := range woken {
		p.waits.clear(name)
	}
	return slices.Collect(maps.Keys(woken))
}
