package reconcile

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Kept is what a kind remembers of its objects between reconciles, until it is
// dropped or the object is another one of that name. One reconcile of an object runs
// at a time; those of others never wait for what it loads.
type Kept[V any] struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]kept[V]
}

type kept[V any] struct {
	uid   types.UID
	value V
}

// Get returns what is kept of an object, loading it the first time.
func (k *Kept[V]) Get(key types.NamespacedName, uid types.UID, load func() (V, error)) (V, error) {
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
	if k.byKey == nil {
		k.byKey = map[types.NamespacedName]kept[V]{}
	}
	k.byKey[key] = kept[V]{uid: uid, value: v}
	return v, nil
}

// Drop forgets an object. It returns what was kept of it, if anything was.
func (k *Kept[V]) Drop(key types.NamespacedName) (V, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	have, ok := k.byKey[key]
	delete(k.byKey, key)
	return have.value, ok
}
