package engine

import (
	"maps"
	"sync"
)

// ownerMap holds a value for some objects of each owner, by the id of the object. Losing it costs
// requests, never correctness.
type ownerMap[V any] struct {
	mu      sync.Mutex
	byOwner map[string]map[string]V
}

// record sets the value of an object.
func (m *ownerMap[V]) record(owner, id string, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byOwner == nil {
		m.byOwner = map[string]map[string]V{}
	}
	if m.byOwner[owner] == nil {
		m.byOwner[owner] = map[string]V{}
	}
	m.byOwner[owner][id] = v
}

// get returns the value of an object; the zero value if there is none.
func (m *ownerMap[V]) get(owner, id string) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byOwner[owner][id]
}

// all returns a copy of the values of an owner.
func (m *ownerMap[V]) all(owner string) map[string]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.byOwner[owner])
}

// deleteFunc drops the values of an owner for which drop returns true.
func (m *ownerMap[V]) deleteFunc(owner string, drop func(id string, v V) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.byOwner[owner], drop)
}

// reset drops the value of one object.
func (m *ownerMap[V]) reset(owner, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byOwner[owner], id)
}

// resetAll drops the values of an owner.
func (m *ownerMap[V]) resetAll(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byOwner, owner)
}
