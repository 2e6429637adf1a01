package plan

import (
	"slices"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

func inComponent(component string, wave int32, e appsv1.InventoryEntry) appsv1.InventoryEntry {
	e.Component, e.Wave = component, wave
	return e
}

// requestRemovalOf returns policies with a request to remove a component.
func requestRemovalOf(component string, change ...func(*RemovalRequest)) func(*Policies) {
	r := &RemovalRequest{KeepReason: func(stacks.Ref) string { return "" }}
	for _, f := range change {
		f(r)
	}
	return func(p *Policies) {
		p.RemovalRequest = func(e *appsv1.InventoryEntry) *RemovalRequest {
			if e.Component != component {
				return nil
			}
			return r
		}
	}
}

func TestPlanRequestedRemovals(t *testing.T) {
	entries := []appsv1.InventoryEntry{inComponent("x", 0, entry("x0", appsv1.EntryApplied)),
		inComponent("x", 1, entry("x1", appsv1.EntryApplied)), inComponent("y", 0, entry("y", appsv1.EntryApplied))}
	there := []live.Object{liveObject("x0"), liveObject("x1"), liveObject("y")}
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
		"the last wave first": {requestRemovalOf("x"), there, []Component{wanted},
			[]string{"delete " + ref("x1").ID()}},
		"an object missing in the index": {requestRemovalOf("x"), []live.Object{liveObject("x0"), liveObject("y")},
			[]Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"no wait for other components": {requestRemovalOf("x"), there, []Component{later},
			[]string{"delete " + ref("x1").ID()}},
		"suspended request": {requestRemovalOf("x", func(r *RemovalRequest) {
			r.Suspended = true
		}), there, []Component{wanted}, nil},
		"without approval": {both(requestRemovalOf("x"), func(p *Policies) {
			p.MaxDeletes = 0
		}), there, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"prune is off": {both(requestRemovalOf("x"), func(p *Policies) {
			p.Prune = false
		}), there, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"kind in ProtectKinds": {both(requestRemovalOf("x"), func(p *Policies) {
			p.ProtectKinds = []string{"ConfigMap"}
		}), there, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"kept objects are released": {requestRemovalOf("x", func(r *RemovalRequest) {
			r.KeepReason = func(stacks.Ref) string { return "kept" }
		}), there, []Component{wanted}, []string{"release " + ref("x1").ID()}},
		"desired by another component": {requestRemovalOf("x"), there,
			[]Component{{Name: "y", Items: []Item{item("y", "y"), item("y", "x0"), item("y", "x1")}}}, nil},
		"handover not known yet": {both(requestRemovalOf("x"), func(p *Policies) {
			p.HandoverTo = func(string) HandoverDecision { return HandoverDecision{Wait: "wait"} }
		}), there, []Component{wanted}, []string{"delete " + ref("x1").ID()}},
		"desired by another owner": {both(requestRemovalOf("x"), func(p *Policies) {
			p.HandoverTo = func(string) HandoverDecision { return HandoverDecision{To: &other} }
		}), there, []Component{wanted}, []string{"hand over " + ref("x0").ID(), "hand over " + ref("x1").ID()}},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture{entries: entries, live: tc.live, policy: tc.policy}
			p := Reconcile(w.snapshot(tc.components...))
			expectEqual(t, "removals", verbs(p.Removals), tc.removals...)
			if slices.ContainsFunc(p.Removals, func(a Action) bool { return a.Entry.Component == "y" }) {
				t.Error("an object of component y is removed")
			}
		})
	}
	w := fixture{entries: entries, live: there, policy: requestRemovalOf("x")}
	p := Removal(w.snapshot())
	expectEqual(t, "removals without a render", verbs(p.Removals), "delete "+ref("x1").ID())
	p = Teardown(w.snapshot())
	expectEqual(t, "removals of the teardown", verbs(p.Removals), "delete "+ref("x1").ID())
}

func TestRemovalRequestOverridesProtectKinds(t *testing.T) {
	p := DefaultPolicies
	claim := stacks.Ref{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "c"}
	e := appsv1.InventoryEntry{ID: claim.ID(), Component: "x"}
	if p.KeepReason(&e, claim) == "" {
		t.Error("by default, PersistentVolumeClaims are kept")
	}
	requestRemovalOf("x")(&p)
	if got := p.KeepReason(&e, claim); got != "" {
		t.Errorf("kept although the request keeps nothing: %s", got)
	}
	requestRemovalOf("x", func(r *RemovalRequest) { r.Suspended = true })(&p)
	if p.KeepReason(&e, claim) == "" {
		t.Error("with a suspended request, the policies of the owner apply")
	}
}
