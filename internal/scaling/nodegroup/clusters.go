package nodegroup

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Clusters is what was published last of each cluster. All that is read is read from here.
type Clusters struct {
	// Wake is told when one asks that was awaited. It must not block.
	Wake func(types.NamespacedName)

	mu    sync.RWMutex
	byKey map[types.NamespacedName]*entry
}

// entry of one cluster. It stays the same while the cluster is published.
type entry struct {
	latest atomic.Pointer[index]
	// asked is when its Cluster Autoscaler asked last, in nanoseconds of Unix time; 0: never.
	asked atomic.Int64
	// awaited is true while somebody waits for it to ask.
	awaited atomic.Bool
}

// NewClusters returns one that knows of no cluster.
func NewClusters() *Clusters {
	return &Clusters{byKey: map[types.NamespacedName]*entry{}}
}

// Publish makes c what is answered of its cluster from now on. c must not be changed any more.
func (s *Clusters) Publish(c *Cluster) {
	x := newIndex(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[c.Key]
	if e == nil {
		e = &entry{}
		s.byKey[c.Key] = e
	}
	e.latest.Store(x)
}

// Drop forgets a cluster: who asks for it is answered that there is none.
func (s *Clusters) Drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byKey, key)
}

// Get returns what was published of a cluster; nil: nothing.
func (s *Clusters) Get(key types.NamespacedName) *Cluster {
	if e := s.of(key); e != nil {
		return e.latest.Load().Cluster
	}
	return nil
}

// LastAsked is when the Cluster Autoscaler of a cluster asked for anything last. It is zero
// when it has not since the cluster was published first.
func (s *Clusters) LastAsked(key types.NamespacedName) time.Time {
	if e := s.of(key); e != nil {
		if at := e.asked.Load(); at != 0 {
			return time.Unix(0, at)
		}
	}
	return time.Time{}
}

// Await has Wake told when the Cluster Autoscaler of a cluster asks next.
func (s *Clusters) Await(key types.NamespacedName) {
	if e := s.of(key); e != nil {
		e.awaited.Store(true)
	}
}

func (s *Clusters) of(key types.NamespacedName) *entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// ask is for who answers a cluster's autoscaler; nil: nothing was published of it.
func (s *Clusters) ask(key types.NamespacedName, now time.Time) *index {
	e := s.of(key)
	if e == nil {
		return nil
	}
	e.asked.Store(now.UnixNano())
	if e.awaited.CompareAndSwap(true, false) {
		s.Wake(key)
	}
	return e.latest.Load()
}
