package reconcile

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// ObjectCache holds one in-memory value per object between reconciles. A value is valid until it is
// dropped, or until the name belongs to an object with another uid. It expects at most one
// reconcile of an object at a time; loading a value does not block the reconciles of other objects.
type ObjectCache[V any] struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]cachedValue[V]
}

type cachedValue[V any] struct {
	uid   types.UID
	value V
}

// Get returns the value of an object. It calls load if there is none; errors of load are not
// cached.
func (k *ObjectCache[V]) Get(key types.NamespacedName, uid types.UID, load func() (V, error)) (V, error) {
	k.mu.Lock()
	have, ok := k.byKey[key]
	k.mu.Unlock()
	if ok && have.uid == uid {
		return have.value, nil
	}
	v, err := load()
	if err != nil {
		return v, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	put(&k.byKey, key, cachedValue[V]{uid: uid, value: v})
	return v, nil
}

// Peek returns the value of an object; false if there is none.
func (k *ObjectCache[V]) Peek(key types.NamespacedName, uid types.UID) (V, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	have, ok := k.byKey[key]
	return have.value, ok && have.uid == uid
}

// Drop removes the value of an object and returns it; false if there was none.
func (k *ObjectCache[V]) Drop(key types.NamespacedName) (V, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	have, ok := k.byKey[key]
	delete(k.byKey, key)
	return have.value, ok
}
