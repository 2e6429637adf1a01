package nodegroup

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Clusters holds the last published state of each cluster. All reads are served from it.
type Clusters struct {
	// Wake is called when a Cluster Autoscaler sends its first request after WakeOnNextRequest. It
	// must not block.
	Wake func(types.NamespacedName)

	mu    sync.RWMutex
	byKey map[types.NamespacedName]*entry
}

// entry is the state of one cluster. It is the same object from the first Publish to Drop.
type entry struct {
	latest atomic.Pointer[index]
	// lastRequest is the time of the last request of its Cluster Autoscaler, in Unix nanoseconds; 0
	// if there was none.
	lastRequest atomic.Int64
	// wakeOnRequest is true while a call of Wake is pending for the next request.
	wakeOnRequest atomic.Bool
}

// NewClusters returns an empty Clusters.
func NewClusters() *Clusters {
	return &Clusters{byKey: map[types.NamespacedName]*entry{}}
}

// Publish replaces the state of a cluster. The caller must not modify c afterwards.
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

// Drop removes a cluster: requests for it fail with ErrUnknownCluster.
func (s *Clusters) Drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byKey, key)
}

// Get returns the last published state of a cluster, or nil.
func (s *Clusters) Get(key types.NamespacedName) *Cluster {
	if e := s.lookup(key); e != nil {
		return e.latest.Load().Cluster
	}
	return nil
}

// LastRequest returns the time of the last request of a cluster's Cluster Autoscaler, of any
// method. It is zero if there was none since the cluster was first published.
func (s *Clusters) LastRequest(key types.NamespacedName) time.Time {
	if e := s.lookup(key); e != nil {
		if at := e.lastRequest.Load(); at != 0 {
			return time.Unix(0, at)
		}
	}
	return time.Time{}
}

// WakeOnNextRequest makes the next request of a cluster's Cluster Autoscaler call Wake, once. It
// does nothing for a cluster that is not published.
func (s *Clusters) WakeOnNextRequest(key types.NamespacedName) {
	if e := s.lookup(key); e != nil {
		e.wakeOnRequest.Store(true)
	}
}

func (s *Clusters) lookup(key types.NamespacedName) *entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// recordRequest records a request of a cluster's Cluster Autoscaler at time now and returns the
// cluster's state, or nil if none was published.
func (s *Clusters) recordRequest(key types.NamespacedName, now time.Time) *index {
	e := s.lookup(key)
	if e == nil {
		return nil
	}
	e.lastRequest.Store(now.UnixNano())
	if e.wakeOnRequest.CompareAndSwap(true, false) {
		s.Wake(key)
	}
	return e.latest.Load()
}
