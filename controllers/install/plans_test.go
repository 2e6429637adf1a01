package install

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// rig is a memory of plans with what it woke.
type rig struct {
	*Plans
	woken []string
}

func newRig() *rig {
	r := &rig{Plans: NewPlans()}
	r.Subscribe(func(n types.NamespacedName) { r.woken = append(r.woken, n.Name) })
	return r
}

func idOf(ns, name string) string {
	return stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: name}.ID()
}

// install is one of namespace "ns" that has objects in some namespaces.
func install(name, source string, in []string, change ...func(*appsv1.KsctlInstall)) *appsv1.KsctlInstall {
	x := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 1}}
	x.Spec.SourceRef = appsv1.SourceRef{Kind: "GitRepository", Name: source}
	x.Status.Conditions = []metav1.Condition{{Type: appsv1.ReadyCondition, Status: metav1.ConditionTrue, ObservedGeneration: 1}}
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

func follows(name string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) { in.Spec.TakeOver = &appsv1.TakeOver{Name: name} }
}

func suspended(in *appsv1.KsctlInstall) { in.Spec.Suspend = true }

func goes(in *appsv1.KsctlInstall) { in.DeletionTimestamp = &metav1.Time{} }

func removedByRequest(in *appsv1.KsctlInstall) { in.Status.Removals = []appsv1.InstallRemoval{{}} }

func chunked(in *appsv1.KsctlInstall) { in.Status.Inventory.Chunks = []string{"o-0"} }

// plans makes components that want objects of namespace "ns".
func wanting(names ...string) []engine.Component {
	c := engine.Component{Name: "main"}
	for _, n := range names {
		c.Items = append(c.Items, engine.Item{ID: idOf("ns", n)})
	}
	return []engine.Component{c}
}

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

// me asks about the object "x" as install "me" of source "src" at artifact "b".
func me(artifact string) leaver {
	return leaver{name: key("me"), cluster: engine.LocalCluster, source: sourceField(install("me", "src", nil)), artifact: artifact}
}

func TestHeirs(t *testing.T) {
	here := []string{"ns"}
	cases := map[string]struct {
		others   []*appsv1.KsctlInstall
		planned  map[string]string   // artifact of an install
		wants    map[string][]string // objects of an install
		artifact string
		heir, on string
	}{
		"nobody else":                                {artifact: "b"},
		"one wants it as of the same artifact":       {[]*appsv1.KsctlInstall{install("o", "src", here)}, map[string]string{"o": "b"}, map[string][]string{"o": {"x", "y"}}, "b", "o", ""},
		"one wants something else":                   {[]*appsv1.KsctlInstall{install("o", "src", here)}, map[string]string{"o": "b"}, map[string][]string{"o": {"y"}}, "b", "", ""},
		"one planned nothing yet":                    {[]*appsv1.KsctlInstall{install("o", "src", here)}, nil, nil, "b", "", "o"},
		"one is at another artifact":                 {[]*appsv1.KsctlInstall{install("o", "src", here)}, map[string]string{"o": "a"}, map[string][]string{"o": {"x"}}, "b", "", "o"},
		"one has objects elsewhere":                  {[]*appsv1.KsctlInstall{install("o", "src", []string{"else"})}, nil, nil, "b", "", ""},
		"one has nothing that is known":              {[]*appsv1.KsctlInstall{install("o", "src", nil)}, nil, nil, "b", "", "o"},
		"one of another source":                      {[]*appsv1.KsctlInstall{install("o", "src2", here)}, map[string]string{"o": "b"}, map[string][]string{"o": {"x"}}, "b", "", ""},
		"one goes":                                   {[]*appsv1.KsctlInstall{install("o", "src", here, goes)}, map[string]string{"o": "b"}, map[string][]string{"o": {"x"}}, "b", "", ""},
		"one is removed whole by request":            {[]*appsv1.KsctlInstall{install("o", "src", here, removedByRequest)}, nil, nil, "b", "", ""},
		"one wants it, another did not plan":         {[]*appsv1.KsctlInstall{install("o", "src", here), install("p", "src", here)}, map[string]string{"o": "b"}, map[string][]string{"o": {"x"}}, "b", "o", ""},
		"two want it":                                {[]*appsv1.KsctlInstall{install("o", "src2", here), install("p", "src", here)}, map[string]string{"o": "b", "p": "b"}, map[string][]string{"o": {"x"}, "p": {"x"}}, "b", "p", ""},
		"deleted: nobody is waited for":              {[]*appsv1.KsctlInstall{install("o", "src", here)}, nil, nil, "", "", ""},
		"deleted: one wants it":                      {[]*appsv1.KsctlInstall{install("o", "src", here)}, map[string]string{"o": "a"}, map[string][]string{"o": {"x"}}, "", "o", ""},
		"deleted: who follows is waited for":         {[]*appsv1.KsctlInstall{install("o", "src2", nil, follows("me"))}, nil, nil, "", "", "o"},
		"deleted: who follows wants it":              {[]*appsv1.KsctlInstall{install("o", "src2", nil, follows("me"))}, map[string]string{"o": "z"}, map[string][]string{"o": {"x"}}, "", "o", ""},
		"deleted: who follows does not want it":      {[]*appsv1.KsctlInstall{install("o", "src2", nil, follows("me"))}, map[string]string{"o": "z"}, map[string][]string{"o": {"y"}}, "", "", ""},
		"who follows planned another artifact":       {[]*appsv1.KsctlInstall{install("o", "src", here, follows("me"))}, map[string]string{"o": "a"}, map[string][]string{"o": {"y"}}, "b", "", ""},
		"a follower wants it at another artifact":    {[]*appsv1.KsctlInstall{install("o", "src2", here, follows("me"))}, map[string]string{"o": "z"}, map[string][]string{"o": {"x"}}, "b", "o", ""},
		"one has more objects than its status lists": {[]*appsv1.KsctlInstall{install("o", "src", []string{"else"}, chunked)}, nil, nil, "b", "", "o"},
		"who follows another one":                    {[]*appsv1.KsctlInstall{install("o", "src2", nil, follows("you"))}, map[string]string{"o": "z"}, map[string][]string{"o": {"x"}}, "", "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			r.seen(install("me", "src", here))
			for _, in := range c.others {
				r.seen(in)
				if a := c.planned[in.Name]; a != "" {
					r.put(in, a, wanting(c.wants[in.Name]...))
				}
			}
			heir, on := r.ask(me(c.artifact), idOf("ns", "x"))
			if nameOf(heir) != c.heir || nameOf(on) != c.on {
				t.Errorf("heir %q, waits for %q; want %q, %q", nameOf(heir), nameOf(on), c.heir, c.on)
			}
		})
	}
}

func nameOf(m *member) string {
	if m == nil {
		return ""
	}
	return m.name.Name
}

// Who waits is woken when there is something new to know, and not otherwise.
func TestWhoWaitsIsWoken(t *testing.T) {
	here := []string{"ns"}
	o, p := install("o", "src", here), install("p", "src", here)
	cases := map[string]struct {
		do    func(r *rig)
		woken bool
	}{
		"nothing happens":           {func(*rig) {}, false},
		"one of two plans":          {func(r *rig) { r.put(o, "b", nil) }, false},
		"both plan":                 {func(r *rig) { r.put(o, "b", nil); r.put(p, "b", nil) }, true},
		"both plan something older": {func(r *rig) { r.put(o, "a", nil); r.put(p, "a", nil) }, false},
		"one wants it":              {func(r *rig) { r.put(o, "b", wanting("x")) }, true},
		"both go":                   {func(r *rig) { r.gone(key("o")); r.gone(key("p")) }, true},
		"both begin to go":          {func(r *rig) { r.seen(install("o", "src", here, goes)); r.seen(install("p", "src", here, goes)) }, true},
		"both move to another source": {func(r *rig) {
			r.seen(install("o", "src2", here))
			r.seen(install("p", "src2", here))
		}, true},
		"both are suspended": {func(r *rig) {
			r.seen(install("o", "src", here, suspended))
			r.seen(install("p", "src", here, suspended))
		}, true},
		"their statuses change": {func(r *rig) { r.seen(o.DeepCopy()); r.seen(p.DeepCopy()) }, false},
		"it is settled":         {func(r *rig) { r.settle(key("me")); r.put(o, "b", nil); r.put(p, "b", nil) }, false},
		"it goes itself":        {func(r *rig) { r.gone(key("me")); r.put(o, "b", nil); r.put(p, "b", nil) }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for range 20 { // whom it waits for is chance
				r := newRig()
				r.seen(o)
				r.seen(p)
				if _, on := r.ask(me("b"), idOf("ns", "x")); on == nil {
					t.Fatal("it waits for nobody")
				}
				c.do(r)
				if got := slices.Contains(r.woken, "me"); got != c.woken {
					t.Fatalf("woken %v, want %v", got, c.woken)
				}
			}
		})
	}
}

func TestWaitForPlansEndsWhenNoPlanIsNeeded(t *testing.T) {
	p := NewPlans()
	p.seen(install("o", "src", []string{"ns"}))
	if _, on := p.ask(me("b"), idOf("ns", "x")); on == nil {
		t.Fatal("it waits for nobody")
	}
	s := &Steps{Plans: p}
	o := &owner{req: &reconcile.Request[*appsv1.KsctlInstall]{Object: install("me", "src", []string{"ns"})}}
	waits := func(reason engine.Reason) int {
		s.settled(o, &engine.Report{Plan: engine.Plan{Waits: []engine.Action{{Reason: reason}}}})
		return len(p.waits.of)
	}
	if n := waits(engine.Claimable); n != 1 {
		t.Errorf("%d waits while another install may want an object, want 1", n)
	}
	if n := waits(engine.Held); n != 0 {
		t.Errorf("%d waits when no plan is needed, want 0", n)
	}
}

// The message names who is in the way and stays so, not one that planned since.
func TestWhoWaitsNamesWhoStays(t *testing.T) {
	r := newRig()
	here := []string{"ns"}
	r.seen(install("stuck", "src", here, suspended))
	for i := range 20 {
		r.seen(install(fmt.Sprint("o", i), "src", here))
	}
	h := &heirs{plans: r.Plans, leaver: me("b")}
	message := ""
	for ask := true; ask; {
		_, message = h.heir(idOf("ns", "x"))
		r.woken = nil
		for i := range 20 {
			r.put(install(fmt.Sprint("o", i), "src", here), "b", nil)
		}
		ask = len(r.woken) > 0
	}
	if !strings.Contains(message, "KsctlInstall ns/stuck") || !strings.Contains(message, "suspended") {
		t.Error(message)
	}
}

// What is said of an install that is waited for is read while its events come.
func TestWhoIsWaitedForMayChange(t *testing.T) {
	p := NewPlans()
	p.seen(install("other", "src", []string{"ns"}, suspended))
	h := &heirs{plans: p, leaver: me("b")}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 100 {
			p.seen(install("other", "src", []string{"ns"}, suspended))
		}
	})
	for range 100 {
		if _, message := h.heir(idOf("ns", "x")); !strings.Contains(message, "suspended") {
			t.Fatal(message)
		}
	}
	wg.Wait()
}

// A commit that takes an object from each of many installs of one source: what
// that costs does not grow with the square of their number.
func TestManyInstallsWaitForEachOther(t *testing.T) {
	const n = 2_000
	r := newRig()
	all := make([]*appsv1.KsctlInstall, n)
	for i := range all {
		all[i] = install(fmt.Sprintf("i%05d", i), "src", []string{"ns"})
		r.seen(all[i])
		r.put(all[i], "a", wanting(fmt.Sprint("keep", i), fmt.Sprint("drop", i)))
	}
	for i, in := range all {
		r.put(in, "b", wanting(fmt.Sprint("keep", i)))
		heir, on := r.ask(leaver{name: key(in.Name), cluster: engine.LocalCluster, source: sourceField(in), artifact: "b"}, idOf("ns", fmt.Sprint("drop", i)))
		if heir != nil || (on == nil) != (i == n-1) {
			t.Fatalf("%d: heir %v, waits for %v", i, heir, on)
		}
	}
	if len(r.woken) != n-1 {
		t.Errorf("%d were woken, want each that waited, once", len(r.woken))
	}
	if len(r.waits.of)+len(r.waits.by)+len(r.waits.id) > 0 {
		t.Error("waits are left")
	}
	for _, in := range all {
		r.gone(key(in.Name))
	}
	if len(r.members)+len(r.bySource)+len(r.byID)+len(r.followers) > 0 {
		t.Error("installs that are gone are remembered")
	}
}
