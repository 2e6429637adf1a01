package nodegroup

import (
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestClusters(t *testing.T) {
	s := NewClusters()
	if s.Get(prod) != nil || !s.LastRequest(prod).IsZero() || s.recordRequest(prod, noon) != nil ||
		!s.LastRequest(prod).IsZero() {
		t.Error("a cluster that is not published has state")
	}
	first := newCluster(1, 0)
	s.Publish(first)
	if s.Get(prod) != first || s.Get(other) != nil || !s.LastRequest(prod).IsZero() {
		t.Error("Get does not return the published state")
	}
	if x := s.recordRequest(prod, noon); x == nil || x.Cluster != first || !s.LastRequest(prod).Equal(noon) {
		t.Error("the request is not recorded, or got another state")
	}
	second := newCluster(2, 0)
	s.Publish(second)
	if s.Get(prod) != second || !s.LastRequest(prod).Equal(noon) {
		t.Error("publishing again resets the last request")
	}
	s.Drop(prod)
	s.Drop(prod)
	if s.Get(prod) != nil || !s.LastRequest(prod).IsZero() {
		t.Error("the cluster is still there after Drop")
	}
}

func TestWakeOnNextRequestWakesOnce(t *testing.T) {
	s := NewClusters()
	var woken []types.NamespacedName
	s.Wake = func(key types.NamespacedName) { woken = append(woken, key) }
	s.WakeOnNextRequest(prod) // not published yet
	s.Publish(newCluster(1, 0))
	s.recordRequest(prod, noon)
	if len(woken) > 0 {
		t.Errorf("woken for %v without WakeOnNextRequest", woken)
	}
	s.WakeOnNextRequest(prod)
	s.WakeOnNextRequest(prod)
	s.Publish(newCluster(2, 0))
	s.recordRequest(prod, noon)
	s.recordRequest(prod, noon)
	if len(woken) != 1 || woken[0] != prod {
		t.Errorf("woken for %v, want prod once", woken)
	}
}

func TestClustersConcurrently(t *testing.T) {
	s := NewClusters()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				switch i % 4 {
				case 0:
					s.Publish(newCluster(1, 0, workers("small")...))
				case 1:
					s.Drop(prod)
				case 2:
					s.LastRequest(prod)
				default:
					x := s.recordRequest(prod, time.Now())
					if x == nil {
						continue // dropped
					}
					if at, ok := x.groupForNode(Node{Name: x.Workers[0].Node}); x.Key != prod || !ok || at != 0 {
						t.Errorf("%s: the node is in group %d (found: %t)", x.Key, at, ok)
					}
				}
			}
		})
	}
	wg.Wait()
	last := newCluster(1, 0, workers("small")...)
	if s.Publish(last); s.Get(prod) != last {
		t.Error("the state that was published last is not returned")
	}
}

func TestWorkersAreFoundByNameOrProviderID(t *testing.T) {
	c := newCluster(3, 1, workers("small", "small", "small", "big", "")...)
	withWorker(c, 1, func(w *Worker) { w.ProviderID = "" })
	withWorker(c, 2, unjoined)
	x := newIndex(c)
	name := func(i int) string { return c.Workers[i].Node }
	for _, want := range []struct {
		node Node
		pool string
	}{
		{Node{Name: name(0), ProviderID: "k3s://" + name(0)}, "small"},
		{Node{Name: name(0)}, "small"},
		{Node{ProviderID: "k3s://" + name(0)}, "small"},
		{Node{Name: "k3s://" + name(0), ProviderID: "k3s://" + name(0)}, "small"},
		{Node{Name: name(1)}, "small"},
		{Node{Name: name(1), ProviderID: "set://just-now"}, "small"},
		{Node{Name: name(3)}, "big"},
		{Node{Name: name(4)}, ""},
		{Node{Name: "prod-vm-cp-0", ProviderID: "k3s://prod-vm-cp-0"}, ""},
		{Node{}, ""},
		{Node{Name: name(0), ProviderID: "k3s://" + name(3)}, ""},
		{Node{Name: placeholderID(groupID("big"), 3)}, "big"},
		{Node{Name: placeholderID(GroupID(other, "big"), 3)}, ""},
	} {
		pool := ""
		if at, ok := x.groupForNode(want.node); ok {
			pool = c.Groups[at].Name
		}
		if pool != want.pool {
			t.Errorf("%+v: pool %q, want %q", want.node, pool, want.pool)
		}
	}
}
