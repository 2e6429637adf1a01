package nodegroup

import (
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestClusters(t *testing.T) {
	s := NewClusters()
	if s.Get(prod) != nil || !s.LastAsked(prod).IsZero() || s.ask(prod, noon) != nil || !s.LastAsked(prod).IsZero() {
		t.Error("something is known of nothing")
	}
	first := cluster(1, 0)
	s.Publish(first)
	if s.Get(prod) != first || s.Get(other) != nil || !s.LastAsked(prod).IsZero() {
		t.Error("not what was published")
	}
	if x := s.ask(prod, noon); x == nil || x.Cluster != first || !s.LastAsked(prod).Equal(noon) {
		t.Error("not what was asked")
	}
	second := cluster(2, 0)
	s.Publish(second)
	if s.Get(prod) != second || !s.LastAsked(prod).Equal(noon) {
		t.Error("publishing again forgets who asked")
	}
	s.Drop(prod)
	s.Drop(prod)
	if s.Get(prod) != nil || !s.LastAsked(prod).IsZero() {
		t.Error("still there")
	}
}

func TestWhoIsAwaitedIsToldOfOnce(t *testing.T) {
	s := NewClusters()
	var woken []types.NamespacedName
	s.Wake = func(key types.NamespacedName) { woken = append(woken, key) }
	s.Await(prod) // of which nothing is known
	s.Publish(cluster(1, 0))
	s.ask(prod, noon)
	if len(woken) > 0 {
		t.Errorf("told of %v, for whom nobody waits", woken)
	}
	s.Await(prod)
	s.Await(prod)
	s.Publish(cluster(2, 0))
	s.ask(prod, noon)
	s.ask(prod, noon)
	if len(woken) != 1 || woken[0] != prod {
		t.Errorf("told of %v", woken)
	}
}

func TestClustersAtOnce(t *testing.T) {
	s := NewClusters()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				switch i % 4 {
				case 0:
					s.Publish(cluster(1, 0, workers("small")...))
				case 1:
					s.Drop(prod)
				case 2:
					s.LastAsked(prod)
				default:
					if x := s.ask(prod, time.Now()); x != nil {
						x.groupOf(Node{Name: x.Workers[0].Node})
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestWorkersAreFoundByEitherName(t *testing.T) {
	c := cluster(3, 1, workers("small", "small", "small", "big", "")...)
	with(c, 1, func(w *Worker) { w.ProviderID = "" })
	with(c, 2, unjoined)
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
		{Node{Name: placeholder(groupID("big"), 3)}, "big"},
		{Node{Name: placeholder(GroupID(other, "big"), 3)}, ""},
	} {
		pool := ""
		if at, ok := x.groupOf(want.node); ok {
			pool = c.Groups[at].Name
		}
		if pool != want.pool {
			t.Errorf("%+v is of %q, want %q", want.node, pool, want.pool)
		}
	}
}
