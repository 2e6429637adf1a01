package handover

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"k8s.io/utils/clock"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// plansTest is a Plans with the names of the installs that it enqueued.
type plansTest struct {
	*Plans
	enqueued []string
}

func newPlansTest() *plansTest {
	r := &plansTest{Plans: NewPlans(clock.RealClock{})}
	r.Subscribe(func(n types.NamespacedName) { r.enqueued = append(r.enqueued, n.Name) })
	return r
}

func idOf(ns, name string) string {
	return stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: name}.ID()
}

// install returns a ready install of namespace "ns" with one object in each of the namespaces in.
// The locations of its objects are unknown if in is nil.
func install(name, source string, in []string, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	x := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 1}}
	x.Spec.SourceRef = appsv1.SourceRef{Kind: "GitRepository", Name: source}
	x.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: metav1.ConditionTrue,
		ObservedGeneration: 1}}
	if in != nil {
		x.Status.Inventory = &appsv1.Inventory{}
	}
	for _, ns := range in {
		x.Status.Inventory.Entries = append(x.Status.Inventory.Entries, appsv1.InventoryEntry{ID: idOf(ns, name)})
	}
	for _, f := range change {
		f(x)
	}
	return x
}

func takesOverFrom(name string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.TakeOver = &appsv1.TakeOver{Name: name} }
}

func suspended(in *appsv1.KsctlInstall) { in.Spec.Suspend = true }

func deleting(in *appsv1.KsctlInstall) { in.DeletionTimestamp = &metav1.Time{} }

func removedByRequest(in *appsv1.KsctlInstall) { in.Status.Removals = []appsv1.InstallRemoval{{}} }

func elsewhere(in *appsv1.KsctlInstall) {
	in.Namespace, in.Spec.SourceRef.Namespace = "elsewhere", "ns"
}

func chunked(in *appsv1.KsctlInstall) { in.Status.Inventory.Chunks = []string{"o-0"} }

// componentsWith returns a component with ConfigMaps of namespace "ns".
func componentsWith(names ...string) []plan.Component {
	c := plan.Component{Name: "main"}
	for _, n := range names {
		c.Items = append(c.Items, plan.Item{ID: idOf("ns", n)})
	}
	return []plan.Component{c}
}

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

// releasing returns the install "me" of source "src", which releases an object after it has planned
// an artifact.
func releasing(artifact string) releasingInstall {
	return releasingInstall{name: key("me"), planScope: scopeOf(install("me", "src", nil)), artifact: artifact}
}

func TestHandoverWaitsForPlansAndFindsNewOwner(t *testing.T) {
	here := []string{"ns"}
	cases := map[string]struct {
		others            []*appsv1.KsctlInstall
		planned           map[string]string   // install to artifact
		wants             map[string][]string // install to objects
		artifact          string
		newOwner, pending string
	}{
		"no other install": {artifact: "b"},
		"an install of the same artifact claims the object": {[]*appsv1.KsctlInstall{install("o", "src", here)},
			map[string]string{"o": "b"}, map[string][]string{"o": {"x", "y"}}, "b", "o", ""},
		"an install claims another object": {[]*appsv1.KsctlInstall{install("o", "src", here)},
			map[string]string{"o": "b"}, map[string][]string{"o": {"y"}}, "b", "", ""},
		"an install has no plan yet": {[]*appsv1.KsctlInstall{install("o", "src", here)}, nil,
			nil, "b", "", "o"},
		"an install planned another artifact": {[]*appsv1.KsctlInstall{install("o", "src", here)},
			map[string]string{"o": "a"}, map[string][]string{"o": {"x"}}, "b", "", "o"},
		"an install has objects only in other namespaces": {
			[]*appsv1.KsctlInstall{install("o", "src", []string{"else"})}, nil, nil, "b", "", ""},
		"the objects of an install are unknown": {[]*appsv1.KsctlInstall{install("o", "src", nil)}, nil,
			nil, "b", "", "o"},
		"an install of another source claims the object": {[]*appsv1.KsctlInstall{install("o", "src2", here)},
			map[string]string{"o": "z"}, map[string][]string{"o": {"x"}}, "b", "o", ""},
		"an install of another source has no plan yet": {[]*appsv1.KsctlInstall{install("o", "src2", here)},
			nil, nil, "b", "", ""},
		"an install of another namespace claims the object": {
			[]*appsv1.KsctlInstall{install("o", "src", here, elsewhere)}, map[string]string{"o": "b"},
			map[string][]string{"o": {"x"}}, "b", "", ""},
		"an install of another namespace has no plan yet": {
			[]*appsv1.KsctlInstall{install("o", "src", here, elsewhere)}, nil, nil, "b", "", ""},
		"an install is being deleted": {[]*appsv1.KsctlInstall{install("o", "src", here,
			deleting)}, map[string]string{"o": "b"}, map[string][]string{"o": {"x"}}, "b", "", ""},
		"a KsctlRemove removes a whole install": {
			[]*appsv1.KsctlInstall{install("o", "src", here, removedByRequest)}, nil, nil, "b", "", ""},
		"an install claims the object, another has no plan": {[]*appsv1.KsctlInstall{install("o", "src", here),
			install("p", "src", here)}, map[string]string{"o": "b"}, map[string][]string{"o": {"x"}}, "b", "o", ""},
		"two installs claim the object, one of another source": {[]*appsv1.KsctlInstall{install("o", "src2", here),
			install("p", "src", here)}, map[string]string{"o": "b", "p": "b"},
			map[string][]string{"o": {"x"}, "p": {"x"}}, "b", "p", ""},
		"deletion: does not wait for other installs": {[]*appsv1.KsctlInstall{install("o", "src", here)}, nil,
			nil, "", "", ""},
		"deletion: an install claims the object": {[]*appsv1.KsctlInstall{install("o", "src", here)},
			map[string]string{"o": "a"}, map[string][]string{"o": {"x"}}, "", "o", ""},
		"deletion: waits for the plan of a successor": {
			[]*appsv1.KsctlInstall{install("o", "src2", nil, takesOverFrom("me"))}, nil, nil, "", "",
			"o"},
		"deletion: a successor claims the object": {
			[]*appsv1.KsctlInstall{install("o", "src2", nil, takesOverFrom("me"))},
			map[string]string{"o": "z"}, map[string][]string{"o": {"x"}}, "", "o", ""},
		"deletion: a successor does not claim the object": {
			[]*appsv1.KsctlInstall{install("o", "src2", nil, takesOverFrom("me"))},
			map[string]string{"o": "z"}, map[string][]string{"o": {"y"}}, "", "", ""},
		"a successor planned another artifact without it": {
			[]*appsv1.KsctlInstall{install("o", "src", here, takesOverFrom("me"))},
			map[string]string{"o": "a"}, map[string][]string{"o": {"y"}}, "b", "", ""},
		"a successor claims the object from another artifact": {
			[]*appsv1.KsctlInstall{install("o", "src2", here, takesOverFrom("me"))},
			map[string]string{"o": "z"}, map[string][]string{"o": {"x"}}, "b", "o", ""},
		"a successor comes before an install of the source": {
			[]*appsv1.KsctlInstall{install("o", "src2", here, takesOverFrom("me")), install("p", "src", here)},
			map[string]string{"o": "z", "p": "b"}, map[string][]string{"o": {"x"}, "p": {"x"}}, "b", "o", ""},
		"the inventory of an install is in chunks": {
			[]*appsv1.KsctlInstall{install("o", "src", []string{"else"}, chunked)}, nil, nil, "b", "",
			"o"},
		"the successor of another install claims the object": {
			[]*appsv1.KsctlInstall{install("o", "src2", nil, takesOverFrom("you"))},
			map[string]string{"o": "z"}, map[string][]string{"o": {"x"}}, "", "o", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newPlansTest()
			r.Update(install("me", "src", here))
			for _, in := range c.others {
				r.Update(in)
				if a := c.planned[in.Name]; a != "" {
					r.RecordPlan(in, a, componentsWith(c.wants[in.Name]...), false)
				}
			}
			d := r.decideAndWatch(releasing(c.artifact), idOf("ns", "x"), noneIgnored)
			if nameOf(d.newOwner) != c.newOwner || nameOf(d.pending) != c.pending || d.left {
				t.Errorf("new owner %q, waits for %q, left %v; want %q, %q", nameOf(d.newOwner), nameOf(d.pending),
					d.left, c.newOwner, c.pending)
			}
		})
	}
}

func nameOf(m *installPlan) string {
	if m == nil {
		return ""
	}
	return m.name.Name
}

// A waiting install is enqueued when the decision about its object may have changed, and only then.
func TestPlanWaitsEnqueueReleasingInstall(t *testing.T) {
	here := []string{"ns"}
	o, p := install("o", "src", here), install("p", "src", here)
	cases := map[string]struct {
		do    func(r *plansTest)
		woken bool
	}{
		"no event":                  {func(*plansTest) {}, false},
		"one of two installs plans": {func(r *plansTest) { r.RecordPlan(o, "b", nil, false) }, false},
		"both plan": {func(r *plansTest) {
			r.RecordPlan(o, "b", nil, false)
			r.RecordPlan(p, "b", nil, false)
		}, true},
		"both plan an older artifact": {func(r *plansTest) {
			r.RecordPlan(o, "a", nil, false)
			r.RecordPlan(p, "a", nil, false)
		}, false},
		"one claims the object": {func(r *plansTest) { r.RecordPlan(o, "b", componentsWith("x"), false) }, true},
		"both no longer exist":  {func(r *plansTest) { r.Remove(key("o")); r.Remove(key("p")) }, true},
		"the deletion of both starts": {func(r *plansTest) {
			r.Update(install("o", "src", here, deleting))
			r.Update(install("p", "src", here, deleting))
		}, true},
		"both move to another source": {func(r *plansTest) {
			r.Update(install("o", "src2", here))
			r.Update(install("p", "src2", here))
		}, true},
		"both are suspended": {func(r *plansTest) {
			r.Update(install("o", "src", here, suspended))
			r.Update(install("p", "src", here, suspended))
		}, true},
		"their statuses change": {func(r *plansTest) { r.Update(o.DeepCopy()); r.Update(p.DeepCopy()) }, false},
		"the waits are cleared": {func(r *plansTest) {
			r.ClearWaits(key("me"))
			r.RecordPlan(o, "b", nil, false)
			r.RecordPlan(p, "b", nil, false)
		}, false},
		"the waiting install no longer exists": {func(r *plansTest) {
			r.Remove(key("me"))
			r.RecordPlan(o, "b", nil, false)
			r.RecordPlan(p, "b", nil, false)
		}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for range 20 { // which install it waits for is random
				r := newPlansTest()
				r.Update(o)
				r.Update(p)
				if d := r.decideAndWatch(releasing("b"), idOf("ns", "x"), noneIgnored); d.pending == nil {
					t.Fatal("the install does not wait")
				}
				c.do(r)
				if got := slices.Contains(r.enqueued, "me"); got != c.woken {
					t.Fatalf("woken %v, want %v", got, c.woken)
				}
			}
		})
	}
}

// The message names the install that blocks the removal permanently, not one that has planned
// since.
func TestHandoverMessageNamesInstallThatStaysUnplanned(t *testing.T) {
	r := newPlansTest()
	here := []string{"ns"}
	r.Update(install("stuck", "src", here, suspended))
	for i := range 20 {
		r.Update(install(fmt.Sprint("o", i), "src", here))
	}
	h := &Handover{plans: r.Plans, releasing: releasing("b")}
	message := ""
	for again := true; again; {
		message = h.Decide(idOf("ns", "x")).Wait
		r.enqueued = nil
		for i := range 20 {
			r.RecordPlan(install(fmt.Sprint("o", i), "src", here), "b", nil, false)
		}
		again = len(r.enqueued) > 0
	}
	if !strings.Contains(message, "KsctlInstall ns/stuck") || !strings.Contains(message, "suspended") {
		t.Error(message)
	}
}

// The data for the message about a blocking install is read while events change the install. The
// race detector must not report this.
func TestHandoverMessageDuringEventsHasNoRace(t *testing.T) {
	p := NewPlans(clock.RealClock{})
	p.Update(install("other", "src", []string{"ns"}, suspended))
	h := &Handover{plans: p, releasing: releasing("b")}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 100 {
			p.Update(install("other", "src", []string{"ns"}, suspended))
		}
	})
	for range 100 {
		if d := h.Decide(idOf("ns", "x")); !strings.Contains(d.Wait, "suspended") {
			t.Fatal(d)
		}
	}
	wg.Wait()
}

// A commit removes an object from each of many installs of one source. The cost must not grow with
// the square of their number.
func TestPlanWaitsOfManyInstallsEnqueueEachOnce(t *testing.T) {
	const n = 2_000
	r := newPlansTest()
	all := make([]*appsv1.KsctlInstall, n)
	for i := range all {
		all[i] = install(fmt.Sprintf("i%05d", i), "src", []string{"ns"})
		r.Update(all[i])
		r.RecordPlan(all[i], "a", componentsWith(fmt.Sprint("keep", i), fmt.Sprint("drop", i)), false)
	}
	for i, in := range all {
		r.RecordPlan(in, "b", componentsWith(fmt.Sprint("keep", i)), false)
		d := r.decideAndWatch(releasingInstall{name: key(in.Name), planScope: scopeOf(in), artifact: "b"},
			idOf("ns", fmt.Sprint("drop", i)), noneIgnored)
		if d.newOwner != nil || (d.pending == nil) != (i == n-1) {
			t.Fatalf("%d: new owner %v, waits for %v", i, d.newOwner, d.pending)
		}
		if d.pending == nil {
			r.ClearWaits(key(in.Name)) // the object is removed
		}
	}
	if len(r.enqueued) != n-1 {
		t.Errorf("%d installs were enqueued, want each waiting install once", len(r.enqueued))
	}
	if len(r.waits.byReleasing)+len(r.waits.byBlocker)+len(r.waits.byObject) > 0 {
		t.Error("some waits were not removed")
	}
	for _, in := range all {
		r.Remove(key(in.Name))
	}
	if len(r.installs)+len(r.bySource)+len(r.byID)+len(r.successors) > 0 {
		t.Error("some deleted installs were not removed")
	}
}

// An install that takes over since its last update here is not current: the plans may lack it.
func TestIsCurrentComparesSuccessors(t *testing.T) {
	r := newPlansTest()
	r.Update(install("o", "src", []string{"ns"}))
	if !r.IsCurrent(install("o", "src", []string{"ns"})) {
		t.Error("not current")
	}
	if r.IsCurrent(install("o", "src", []string{"ns"}, takesOverFrom("me"))) || r.IsCurrent(install("p", "src", nil)) {
		t.Error("current")
	}
}
