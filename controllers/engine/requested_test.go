package engine

import (
	"slices"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

func belongs(component string, wave int32, e appsv1.InventoryEntry) appsv1.InventoryEntry {
	e.Component, e.Wave = component, wave
	return e
}

// askedFor is a policy by which a component is asked to go; what is held is not.
func askedFor(component string, change ...func(*Request)) func(*Policies) {
	r := &Request{Keep: func(stacks.Ref) string { return "" }}
	for _, f := range change {
		f(r)
	}
	return func(p *Policies) {
		p.Asked = func(e *appsv1.InventoryEntry) *Request {
			if e.Component != component {
				return nil
			}
			return r
		}
	}
}

func TestPlanOfWhatIsAskedToGo(t *testing.T) {
	entries := []appsv1.InventoryEntry{belongs("x", 0, entry("x0", appsv1.EntryApplied)), belongs("x", 1, entry("x1", appsv1.EntryApplied)), belongs("y", 0, entry("y", appsv1.EntryApplied))}
	there := []live.Object{alive("x0"), alive("x1"), alive("y")}
	wanted := Component{Name: "y", Items: []Item{item("y", "y")}}
	later := Component{Name: "y", DependsOn: []string{"x"}, Items: []Item{item("y", "y"), item("y", "new")}}
	both := func(fs ...func(*Policies)) func(*Policies) {
		return func(p *Policies) {
			for _, f := range fs {
				f(p)
			}
		}
	}
	for name, tc := range map[string]struct {
		policy     func(*Policies)
		live       []live.Object
		components []Component
		removals   []string
	}{
		"the last wave goes first":        {askedFor("x"), there, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"the next when that is gone":      {askedFor("x"), []live.Object{alive("x0"), alive("y")}, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"nothing that stays is waited":    {askedFor("x"), there, []Component{later}, []string{"delete " + ref("x1").ID()}},
		"what is held stays":              {askedFor("x", func(r *Request) { r.Hold = true }), there, []Component{wanted}, nil},
		"no guard holds it":               {both(askedFor("x"), func(p *Policies) { p.MaxDeletes = 0 }), there, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"nor that nothing is pruned":      {both(askedFor("x"), func(p *Policies) { p.Prune = false }), there, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"nor what the install protects":   {both(askedFor("x"), func(p *Policies) { p.Protect = []string{"ConfigMap"} }), there, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"what it keeps is released":       {askedFor("x", func(r *Request) { r.Keep = func(stacks.Ref) string { return "kept" } }), there, []Component{wanted}, []string{"release " + ref("x1").ID()}},
		"another component that wants it": {askedFor("x"), there, []Component{{Name: "y", Items: []Item{item("y", "y"), item("y", "x0"), item("y", "x1")}}}, nil},
		"a plan of others is not waited":  {both(askedFor("x"), func(p *Policies) { p.Heir = func(string) (*OwnerKey, string) { return nil, "wait" } }), there, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"who wants it gets it":            {both(askedFor("x"), func(p *Policies) { p.Heir = func(string) (*OwnerKey, string) { return &other, "" } }), there, []Component{wanted}, []string{"hand over " + ref("x0").ID(), "hand over " + ref("x1").ID()}},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{entries: entries, live: tc.live, policy: tc.policy}
			p := MakePlan(w.input(tc.components...))
			same(t, "removals", verbs(p.Removals), tc.removals...)
			if slices.ContainsFunc(p.Removals, func(a Action) bool { return a.Entry.Component == "y" }) {
				t.Error("y stays")
			}
		})
	}
	w := world{entries: entries, live: there, policy: askedFor("x")}
	p := PlanAsked(w.input())
	same(t, "without a render", verbs(p.Removals), "delete "+ref("x1").ID())
	p = PlanTeardown(w.input())
	same(t, "with the install", verbs(p.Removals), "delete "+ref("x1").ID())
}

func TestKeptByRequest(t *testing.T) {
	p := DefaultPolicies
	claim := stacks.Ref{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "c"}
	e := appsv1.InventoryEntry{ID: claim.ID(), Component: "x"}
	if p.keeps(&e, claim) == "" {
		t.Error("claims are kept")
	}
	askedFor("x")(&p)
	if got := p.keeps(&e, claim); got != "" {
		t.Errorf("the request says otherwise: %s", got)
	}
	askedFor("x", func(r *Request) { r.Hold = true })(&p)
	if p.keeps(&e, claim) == "" {
		t.Error("what is held goes as the owner says")
	}
}
