package reconcile

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func version(uid types.UID, rv string) *appsv1.KsctlInstall {
	in := &appsv1.KsctlInstall{}
	in.UID, in.ResourceVersion = uid, rv
	return in
}

func TestRecall(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "i"}
	for name, tc := range map[string]struct {
		ours, cached *appsv1.KsctlInstall
		want         string
		kept         bool
	}{
		"nothing of ours":        {nil, version("a", "5"), "5", false},
		"the cache is behind":    {version("a", "10"), version("a", "9"), "10", true},
		"numbers, not text":      {version("a", "100"), version("a", "99"), "100", true},
		"the cache has ours":     {version("a", "10"), version("a", "10"), "10", false},
		"the cache is newer":     {version("a", "10"), version("a", "11"), "11", false},
		"another object":         {version("a", "10"), version("b", "9"), "9", false},
		"no number":              {version("a", "x"), version("a", "9"), "9", false},
		"no number in the cache": {version("a", "10"), version("a", "y"), "y", false},
		"empty":                  {version("a", ""), version("a", "9"), "9", false},
	} {
		t.Run(name, func(t *testing.T) {
			var m memory[*appsv1.KsctlInstall]
			if tc.ours != nil {
				m.keep(key, tc.ours)
			}
			ours, written := m.recall(key)
			m.cached(key, tc.cached)
			got := tc.cached
			if written && newerThan(ours, tc.cached) {
				got = ours
			}
			if got.ResourceVersion != tc.want {
				t.Errorf("got %q, want %q", got.ResourceVersion, tc.want)
			}
			if _, kept := m.objs[key]; kept != tc.kept {
				t.Errorf("kept=%t: what the cache has need not be remembered", kept)
			}
		})
	}
}

// What the cache has is forgotten by its event: the next reconcile may be far away.
func TestMemoryOfWhatArrived(t *testing.T) {
	r := &Reconciler[*appsv1.KsctlInstall]{}
	key := types.NamespacedName{Namespace: "ns", Name: "i"}
	ours := version("a", "10")
	ours.Namespace, ours.Name = key.Namespace, key.Name
	r.memory.keep(key, ours)
	for _, step := range []struct {
		arrives string
		kept    bool
	}{{"9", true}, {"10", false}} {
		cached := ours.DeepCopy()
		cached.ResourceVersion = step.arrives
		if r.Wishes().Update(event.UpdateEvent{ObjectOld: ours, ObjectNew: cached}) {
			t.Error("a status wakes somebody")
		}
		if _, kept := r.memory.objs[key]; kept != step.kept {
			t.Errorf("kept is %t when %s has arrived", kept, step.arrives)
		}
	}
}

func TestMemoryDrop(t *testing.T) {
	var m memory[*appsv1.KsctlInstall]
	one, two := types.NamespacedName{Name: "one"}, types.NamespacedName{Name: "two"}
	for _, k := range []types.NamespacedName{one, two} {
		m.keep(k, version("a", "10"))
		m.wrote(k, noon)
	}
	m.drop(one)
	if _, kept := m.recall(one); kept {
		t.Error("still remembered")
	}
	if !m.lastWrite(one).IsZero() {
		t.Error("still written")
	}
	if got, kept := m.recall(two); !kept || got.ResourceVersion != "10" {
		t.Error("another object was dropped")
	}
	if got := m.lastWrite(two); !got.Equal(noon) {
		t.Errorf("written at %s", got.Format(time.RFC3339))
	}
}
