package install

import (
	"maps"
	"math/rand/v2"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// wait is one object that an install wants no more, and the other install whose
// plan is needed to know whether somebody wants it.
type wait struct {
	leaver leaver
	id     string
	on     types.NamespacedName
}

// leaver is an install that wants an object no more.
type leaver struct {
	name types.NamespacedName
	// cluster that has the object.
	cluster, source string
	// artifact that it planned; empty when it is being deleted.
	artifact string
}

// waits are found by who waits, by whom they wait for, and by what about.
type waits struct {
	of map[types.NamespacedName]map[string]*wait
	by map[types.NamespacedName]map[*wait]bool
	id map[uint64]map[*wait]bool
}

func newWaits() waits {
	return waits{of: map[types.NamespacedName]map[string]*wait{}, by: map[types.NamespacedName]map[*wait]bool{}, id: map[uint64]map[*wait]bool{}}
}

// put enters a wait in place of an earlier one for the same object.
func (ws *waits) put(w *wait) {
	if before := ws.of[w.leaver.name][w.id]; before != nil {
		ws.drop(before)
	}
	if ws.of[w.leaver.name] == nil {
		ws.of[w.leaver.name] = map[string]*wait{}
	}
	ws.of[w.leaver.name][w.id] = w
	enter(ws.by, w.on, w)
	enter(ws.id, hashID(w.leaver.cluster, w.id), w)
}

func (ws *waits) drop(w *wait) {
	delete(ws.of[w.leaver.name], w.id)
	if len(ws.of[w.leaver.name]) == 0 {
		delete(ws.of, w.leaver.name)
	}
	leave(ws.by, w.on, w)
	leave(ws.id, hashID(w.leaver.cluster, w.id), w)
}

// clear ends all waits of an install.
func (ws *waits) clear(install types.NamespacedName) {
	for _, w := range ws.of[install] {
		ws.drop(w)
	}
}

// on are the waits for an install, about those for an object.
func (ws *waits) on(install types.NamespacedName) []*wait {
	return slices.Collect(maps.Keys(ws.by[install]))
}
func (ws *waits) about(id uint64) []*wait { return slices.Collect(maps.Keys(ws.id[id])) }

func enter[K comparable](in map[K]map[*wait]bool, at K, w *wait) {
	if in[at] == nil {
		in[at] = map[*wait]bool{}
	}
	in[at][w] = true
}

func leave[K comparable](in map[K]map[*wait]bool, at K, w *wait) {
	delete(in[at], w)
	if len(in[at]) == 0 {
		delete(in, at)
	}
}

// ask tells who wants an object that an install wants no more, or whose plan is
// needed to know; neither: nobody does. Whoever has to wait is woken when it is over.
func (p *Plans) ask(l leaver, id string) (heir, on *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	heir, on = p.find(l, id)
	if heir == nil && on != nil {
		p.waits.put(&wait{leaver: l, id: id, on: on.name})
	}
	return heir.copy(), on.copy() // they change with events
}

func (m *member) copy() *member {
	if m == nil {
		return nil
	}
	c := *m
	return &c
}

// expect waits for somebody to want an object.
func (p *Plans) expect(w *wait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits.put(w)
}

// settle ends the waits of an install.
func (p *Plans) settle(install types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits.clear(install)
}

// find is ask without waiting. The lock is held.
func (p *Plans) find(l leaver, id string) (heir, on *member) {
	for _, m := range p.byID[hashID(l.cluster, id)] {
		follows := m.follows == l.name
		if m.name == l.name || m.leaving || m.cluster != l.cluster || !follows && m.source != l.source {
			continue
		}
		if follows || l.artifact == "" || m.artifact == l.artifact {
			return m, nil
		}
	}
	for _, m := range p.followers[l.name] {
		if m.artifact == unplanned && m.name != l.name && m.cluster == l.cluster && m.couldClaim(id) {
			return nil, m
		}
	}
	if l.artifact == "" { // who is deleted waits for those alone that say that they follow
		return nil, nil
	}
	for artifact, g := range p.bySource[origin{cluster: l.cluster, source: l.source}] {
		if artifact == l.artifact {
			continue
		}
		// Not all wait for the same one.
		for i, from := 0, rand.IntN(len(g.list)); i < len(g.list); i++ {
			m := g.list[(from+i)%len(g.list)]
			// A follower that planned has said what it wants.
			known := m.follows == l.name && m.artifact != unplanned
			if m.name != l.name && !known && m.couldClaim(id) {
				return nil, m
			}
		}
	}
	return nil, nil
}

// couldClaim is true when the member has objects in the same place, or none that
// are known.
func (m *member) couldClaim(id string) bool {
	at := m.places()
	return at == nil || slices.Contains(at, place(id))
}

// review returns the installs that have to look again because of a change that
// concerns some waits. One that waits for the next plan in a row of many is not
// woken for each of them, but for one that may not come.
func (p *Plans) review(concerned []*wait) []types.NamespacedName {
	woken := map[types.NamespacedName]bool{}
	for _, w := range concerned {
		if p.waits.of[w.leaver.name][w.id] != w {
			continue // settled meanwhile
		}
		heir, on := p.find(w.leaver, w.id)
		if heir == nil && on != nil && on.stuck == "" {
			p.waits.put(&wait{leaver: w.leaver, id: w.id, on: on.name})
			continue
		}
		woken[w.leaver.name] = true
	}
	for name := range woken {
		p.waits.clear(name)
	}
	return slices.Collect(maps.Keys(woken))
}
