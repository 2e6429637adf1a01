package reconcile

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// recentWrites holds the newest version of each written object until the cache has it, so that no
// reconcile works on a status older than our own write.
type recentWrites[T Object] struct {
	mu         sync.Mutex
	objects    map[types.NamespacedName]T
	lastWrites map[types.NamespacedName]time.Time
	// yielded are the objects that deferred a status write and have not written since.
	yielded map[types.NamespacedName]bool
	// finalized are the objects whose finalizer was removed. For a while, the cache may still
	// have them with the finalizer and with everything that they owned.
	finalized map[types.NamespacedName]types.UID
}

func (m *recentWrites[T]) markFinalized(key types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finalized == nil {
		m.finalized = map[types.NamespacedName]types.UID{}
	}
	m.finalized[key] = uid
}

func (m *recentWrites[T]) isFinalized(key types.NamespacedName, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended, ok := m.finalized[key]
	return ok && ended == uid
}

func (m *recentWrites[T]) keep(key types.NamespacedName, o T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = map[types.NamespacedName]T{}
	}
	m.objects[key] = o
}

// dropIfCached drops the written version of an object if the cache has that version or a newer one.
func (m *recentWrites[T]) dropIfCached(key types.NamespacedName, o client.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ours, ok := m.objects[key]; ok && !isNewer(ours, o) {
		delete(m.objects, key)
	}
}

// get returns the written version of an object that the cache may not have yet. The caller must not
// change it.
func (m *recentWrites[T]) get(key types.NamespacedName) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lastWritten, ok := m.objects[key]
	return lastWritten, ok
}

// isNewer reports whether the written version is a newer version of the same object.
func isNewer(ours, cached client.Object) bool {
	return ours.GetUID() == cached.GetUID() && newerVersion(ours.GetResourceVersion(), cached.GetResourceVersion())
}

// newerVersion compares resourceVersions of one resource. They are comparable as numbers
// (KEP-5504).
func newerVersion(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x > y
}

func (m *recentWrites[T]) recordWrite(key types.NamespacedName, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastWrites == nil {
		m.lastWrites = map[types.NamespacedName]time.Time{}
	}
	m.lastWrites[key] = at
}

// yield reports whether an object has to defer its status write. It returns true once until
// resetYield, even if the next revision arrives before that.
func (m *recentWrites[T]) yield(key types.NamespacedName) bool {
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

// resetYield allows the object to yield again.
func (m *recentWrites[T]) resetYield(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.yielded, key)
}

func (m *recentWrites[T]) lastWrite(key types.NamespacedName) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastWrites[key]
}

func (m *recentWrites[T]) drop(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	delete(m.lastWrites, key)
	delete(m.finalized, key)
}
