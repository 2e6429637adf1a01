package reconcile

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memory holds the newest version of objects that we wrote until the cache has
// it, so that nothing is planned on a status that is older than our own write.
type memory[T Object] struct {
	mu     sync.Mutex
	objs   map[types.NamespacedName]T
	writes map[types.NamespacedName]time.Time
	// yielded are the objects that stood back and have written nothing since.
	yielded map[types.NamespacedName]bool
	// ended are the objects that were let go: the cache may show them as they
	// were before, with everything that they owned, for a while.
	ended map[types.NamespacedName]types.UID
}

func (m *memory[T]) end(key types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended == nil {
		m.ended = map[types.NamespacedName]types.UID{}
	}
	m.ended[key] = uid
}

func (m *memory[T]) hasEnded(key types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended, ok := m.ended[key]
	return ok && ended == uid
}

func (m *memory[T]) keep(key types.NamespacedName, o T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objs == nil {
		m.objs = map[types.NamespacedName]T{}
	}
	m.objs[key] = o
}

// cached forgets what we wrote of an object once the cache has it.
func (m *memory[T]) cached(key types.NamespacedName, o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ours, ok := m.objs[key]; ok && !newerThan(ours, o) {
		delete(m.objs, key)
	}
}

// recall returns what we wrote of an object, while the cache may not have it. It is not
// to be changed.
func (m *memory[T]) recall(key types.NamespacedName) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ours, ok := m.objs[key]
	return ours, ok
}

// newerThan says whether what we wrote is a newer version of the same object.
func newerThan(ours, cached client.Object) bool {
	return ours.GetUID() == cached.GetUID() && newer(ours.GetResourceVersion(), cached.GetResourceVersion())
}

// newer compares resourceVersions of one resource as the numbers that they are
// (KEP-5504).
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x > y
}

func (m *memory[T]) wrote(key types.NamespacedName, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writes == nil {
		m.writes = map[types.NamespacedName]time.Time{}
	}
	m.writes[key] = at
}

// yield says whether an object stands back: once until resume, also where the next
// revision comes before that.
func (m *memory[T]) yield(key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.yielded[key] {
		return false
	}
	if m.yielded == nil {
		m.yielded = map[types.NamespacedName]bool{}
	}
	m.yielded[key] = true
	return true
}

// resume ends that.
func (m *memory[T]) resume(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.yielded, key)
}

func (m *memory[T]) lastWrite(key types.NamespacedName) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes[key]
}

func (m *memory[T]) drop(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objs, key)
	delete(m.writes, key)
	delete(m.ended, key)
}
