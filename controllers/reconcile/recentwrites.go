package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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

// put sets a value in a map, which may be nil.
func put[V any](m *map[types.NamespacedName]V, key types.NamespacedName, v V) {
	if *m == nil {
		*m = map[types.NamespacedName]V{}
	}
	(*m)[key] = v
}

func (m *recentWrites[T]) markFinalized(key types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	put(&m.finalized, key, uid)
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
	put(&m.objects, key, o)
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

// isNewer reports whether the written version is a newer version of the same object. The
// resourceVersions of one resource are comparable (KEP-5504).
func isNewer(ours, cached client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(ours.GetResourceVersion(), cached.GetResourceVersion())
	return err == nil && order > 0 && ours.GetUID() == cached.GetUID()
}

// recordWrite keeps the version that a status write has returned.
func (m *recentWrites[T]) recordWrite(key types.NamespacedName, o T, at time.Time) {
	m.keep(key, o)
	m.mu.Lock()
	defer m.mu.Unlock()
	put(&m.lastWrites, key, at)
}

// yield reports whether an object has to defer its status write. It returns true once until
// resetYield, even if the next revision arrives before that.
func (m *recentWrites[T]) yield(key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.yielded[key] {
		return false
	}
	put(&m.yielded, key, true)
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
