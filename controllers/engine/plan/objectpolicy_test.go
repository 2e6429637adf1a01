package plan

import (
	"slices"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// The live annotations decide whether an object that left the stack, or whose removal is requested,
// is released instead.
func TestObjectsKeptByAnnotationsAreReleased(t *testing.T) {
	id := ref("a").ID()
	request := func(p *Policies) {
		p.RemovalRequest = func(*appsv1.InventoryEntry) *RemovalRequest {
			return &RemovalRequest{KeepReason: func(stacks.Ref) string { return "" }}
		}
	}
	for name, tc := range map[string]struct {
		pruned, deleted bool
		// kept are the removals that keep the object.
		kept []string
	}{
		"no annotation":     {},
		"kept always":       {true, true, []string{"prune", "request", "teardown"}},
		"kept when pruned":  {true, false, []string{"prune"}},
		"kept when deleted": {false, true, []string{"request", "teardown"}},
	} {
		w := fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", func(o *live.Object) {
				o.KeptWhenPruned, o.KeptWhenDeleted = tc.pruned, tc.deleted
			})}}
		requested := w
		requested.policy = request
		for removal, actions := range map[string][]Action{"prune": Reconcile(w.snapshot()).Removals,
			"teardown": Teardown(w.snapshot()).Removals, "request": Removal(requested.snapshot()).Removals} {
			want := "delete " + id
			if slices.Contains(tc.kept, removal) {
				want = "release " + id
			}
			expectEqual(t, name+", "+removal, verbs(actions), want)
			a := actions[0]
			if a.Verb == VerbRelease && (a.Reason != ReasonKept || a.Message != KeptByAnnotationMessage) {
				t.Errorf("%s, %s: %s: %s", name, removal, a.Reason, a.Message)
			}
		}
	}
}

func TestIgnoredHealth(t *testing.T) {
	failed := func(o *live.Object) { o.Readiness = live.Failed }
	for name, tc := range map[string]struct {
		change           func(*Item)
		ready, unhealthy bool
	}{
		"an object without the annotation": {change: func(it *Item) { it.IgnoreHealth = false }, unhealthy: true},
		"an object":                        {change: func(*Item) {}, ready: true},
		"a Job":                            {change: func(it *Item) { it.RunsOnce = true }, unhealthy: true},
		"a CustomResourceDefinition": {change: func(it *Item) { it.Serves = &stacks.ServedKind{} },
			unhealthy: true},
		"a Namespace": {change: func(it *Item) { it.Kind = "Namespace" }, unhealthy: true},
	} {
		it := item("c", "a")
		it.IgnoreHealth = true
		tc.change(&it)
		w := fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", failed)}}
		in := w.snapshot(Component{Name: "c", Items: []Item{it}})
		in.SyncErrors = nil
		st := Reconcile(in).Components[0]
		if st.Ready != tc.ready || st.Unhealthy != tc.unhealthy || !st.Applied {
			t.Errorf("%s: ready %t, unhealthy %t, applied %t: %s", name, st.Ready, st.Unhealthy, st.Applied, st.Message)
		}
	}
}
