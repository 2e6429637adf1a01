package reconcile

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func installVersion(uid types.UID, rv string) *appsv1.KsctlInstall {
	in := &appsv1.KsctlInstall{}
	in.UID, in.ResourceVersion = uid, rv
	return in
}

func TestRecentWritesGet(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "i"}
	for name, tc := range map[string]struct {
		ours, cached *appsv1.KsctlInstall
		want         string
		kept         bool
	}{
		"nothing of ours":        {nil, installVersion("a", "5"), "5", false},
		"the cache is behind":    {installVersion("a", "10"), installVersion("a", "9"), "10", true},
		"numbers, not text":      {installVersion("a", "100"), installVersion("a", "99"), "100", true},
		"the cache has ours":     {installVersion("a", "10"), installVersion("a", "10"), "10", false},
		"the cache is newer":     {installVersion("a", "10"), installVersion("a", "11"), "11", false},
		"another object":         {installVersion("a", "10"), installVersion("b", "9"), "9", false},
		"no number":              {installVersion("a", "x"), installVersion("a", "9"), "9", false},
		"no number in the cache": {installVersion("a", "10"), installVersion("a", "y"), "y", false},
		"empty":                  {installVersion("a", ""), installVersion("a", "9"), "9", false},
	} {
		t.Run(name, func(t *testing.T) {
			var m recentWrites[*appsv1.KsctlInstall]
			if tc.ours != nil {
				m.keep(key, tc.ours)
			}
			ours, written := m.get(key)
			m.dropIfCached(key, tc.cached)
			got := tc.cached
			if written && isNewer(ours, tc.cached) {
				got = ours
			}
			if got.ResourceVersion != tc.want {
				t.Errorf("got %q, want %q", got.ResourceVersion, tc.want)
			}
			if _, kept := m.objects[key]; kept != tc.kept {
				t.Errorf("kept is %t, want %t: a version that the cache has is dropped", kept, tc.kept)
			}
		})
	}
}

// The event of a version drops the in-memory copy: the next reconcile may be a long time away.
func TestSpecChangedDropsCachedWrites(t *testing.T) {
	r := &Reconciler[*appsv1.KsctlInstall]{}
	key := types.NamespacedName{Namespace: "ns", Name: "i"}
	ours := installVersion("a", "10")
	ours.Namespace, ours.Name = key.Namespace, key.Name
	r.recent.keep(key, ours)
	for _, step := range []struct {
		arrives string
		kept    bool
	}{{"9", true}, {"10", false}} {
		cached := ours.DeepCopy()
		cached.ResourceVersion = step.arrives
		if r.SpecChanged().Update(event.UpdateEvent{ObjectOld: ours, ObjectNew: cached}) {
			t.Error("SpecChanged passes an event of the status")
		}
		if _, kept := r.recent.objects[key]; kept != step.kept {
			t.Errorf("kept is %t after the event of version %s", kept, step.arrives)
		}
	}
}

func TestRecentWritesDrop(t *testing.T) {
	var m recentWrites[*appsv1.KsctlInstall]
	one, two := types.NamespacedName{Name: "one"}, types.NamespacedName{Name: "two"}
	for _, k := range []types.NamespacedName{one, two} {
		m.recordWrite(k, installVersion("a", "10"), noon)
	}
	m.drop(one)
	if _, kept := m.get(one); kept {
		t.Error("the written version is kept after drop")
	}
	if !m.lastWrite(one).IsZero() {
		t.Error("the time of the write is kept after drop")
	}
	if got, kept := m.get(two); !kept || got.ResourceVersion != "10" {
		t.Error("another object was dropped")
	}
	if got := m.lastWrite(two); !got.Equal(noon) {
		t.Errorf("the last write of another object is at %s", got.Format(time.RFC3339))
	}
}
