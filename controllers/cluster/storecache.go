package cluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// How long what was read of a store is kept: when it changes, each of its clusters is looked
// at, and all within a moment. Where its version is not known, it may have changed meanwhile.
const (
	keepStore  = 30 * time.Second
	keepGlance = 3 * time.Second
)

// storeKey is whose rights a store is read with.
type storeKey struct {
	account   types.NamespacedName
	namespace string
}

// stores reads each version of a store once.
type stores struct {
	mu    sync.Mutex
	byKey map[storeKey]*storeReading
}

type storeReading struct {
	version string

	mu     sync.Mutex
	states map[string][]byte
}

// read returns what a store has, which is not to be changed. Others who want the same wait
// for the one that reads it.
func (s *stores) read(key storeKey, version string, load func() (map[string][]byte, error)) (map[string][]byte, error) {
	r := s.reading(key, version)
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
	keep := keepStore
	if version == "" {
		keep = keepGlance
	}
	time.AfterFunc(keep, func() { s.drop(key, r) })
	return states, nil
}

func (s *stores) reading(key storeKey, version string) *storeReading {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.byKey[key]; r != nil && r.version == version {
		return r
	}
	if s.byKey == nil {
		s.byKey = map[storeKey]*storeReading{}
	}
	r := &storeReading{version: version}
	s.byKey[key] = r
	return r
}

func (s *stores) drop(key storeKey, r *storeReading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[key] == r {
		delete(s.byKey, key)
	}
}
