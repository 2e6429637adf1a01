package cluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// storeTTL is how long the content of a store is cached: a change of the store enqueues all of its
// clusters, and their reconciles share one read. unversionedStoreTTL is shorter: it is for stores
// whose version is unknown, and which may change without notice.
const (
	storeTTL            = 30 * time.Second
	unversionedStoreTTL = 3 * time.Second
)

// storeKey is the namespace of a store, and the account that reads it.
type storeKey struct {
	account   types.NamespacedName
	namespace string
}

// storeCache reads each version of a store once.
type storeCache struct {
	mu    sync.Mutex
	byKey map[storeKey]*cachedStore
}

type cachedStore struct {
	version string

	mu     sync.Mutex
	states map[string][]byte
}

// read returns the content of a store, which the caller must not change. Concurrent calls for the
// same version wait for one load. Errors are not cached.
func (s *storeCache) read(key storeKey, version string,
	load func() (map[string][]byte, error)) (map[string][]byte, error) {
	r := s.entry(key, version)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states != nil {
		return r.states, nil
	}
	states, err := load()
	if err != nil {
		return nil, err
	}
	if states == nil {
		states = map[string][]byte{}
	}
	r.states = states
	ttl := storeTTL
	if version == "" {
		ttl = unversionedStoreTTL
	}
	time.AfterFunc(ttl, func() { s.drop(key, r) })
	return states, nil
}

func (s *storeCache) entry(key storeKey, version string) *cachedStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byKey[key]; r != nil && r.version == version {
		return r
	}
	if s.byKey == nil {
		s.byKey = map[storeKey]*cachedStore{}
	}
	r := &cachedStore{version: version}
	s.byKey[key] = r
	return r
}

func (s *storeCache) drop(key storeKey, r *cachedStore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key] == r {
		delete(s.byKey, key)
	}
}
