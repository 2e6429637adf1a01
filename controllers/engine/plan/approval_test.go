package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// appliedObjects returns a fixture with n applied objects.
func appliedObjects(n int) (w fixture) {
	for i := range n {
		name := fmt.Sprintf("o%03d", i)
		w.entries, w.live = append(w.entries, entry(name, appsv1.EntryApplied)), append(w.live, liveObject(name))
	}
	return w
}

func TestDeletesAboveLimitsNeedApproval(t *testing.T) {
	for name, tc := range map[string]struct {
		total, leaves int
		policy        func(*Policies)
		refused       bool
	}{
		"10 of 20":                 {20, 10, nil, false},
		"all of 10":                {10, 10, nil, false},
		"more than half":           {20, 11, nil, true},
		"half of many":             {40, 20, nil, false},
		"50 of 200":                {200, 50, nil, false},
		"51 of 200":                {200, 51, nil, true},
		"no deletes allowed":       {5, 1, func(p *Policies) { p.MaxDeletes = 0 }, true},
		"a higher percentage":      {20, 11, func(p *Policies) { p.MaxDeletePercent = 60 }, false},
		"a higher number":          {200, 90, func(p *Policies) { p.MaxDeletes = 100 }, false},
		"released, not deleted":    {200, 200, func(p *Policies) { p.Prune = false }, false},
		"approved for another set": {200, 51, func(p *Policies) { p.ApprovedDigest = Digest(nil) }, true},
		"approved for this set": {200, 51, func(p *Policies) {
			p.ApprovedDigest = Digest(appliedObjects(51).entries)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := appliedObjects(tc.total)
			w.policy = tc.policy
			var keep []Item
			for i := tc.leaves; i < tc.total; i++ {
				keep = append(keep, item("c", fmt.Sprintf("o%03d", i)))
			}
			p := Reconcile(w.snapshot(Component{Name: "c", Items: keep}))
			var refused *ApprovalRequiredError
			for _, a := range p.Waits {
				errors.As(a.Err, &refused)
			}
			switch {
			case (refused != nil) != tc.refused:
				t.Errorf("approval required: %v", refused)
			case !tc.refused && len(p.Removals) != tc.leaves:
				t.Errorf("%d are removed, want %d", len(p.Removals), tc.leaves)
			case tc.refused && (len(p.Removals) > 0 || refused.Deletes != tc.leaves || refused.Total != tc.total ||
				p.Ready()):
				t.Errorf("%d are removed, %v", len(p.Removals), refused)
			}
		})
	}
}

// New objects that replace removed ones are in the inventory when the delete limits are checked.
// They must not reduce the percentage of deletes.
func TestDeleteLimitsCountObjectsBeforeTheChange(t *testing.T) {
	handoverTo := func(string) HandoverDecision { return HandoverDecision{Wait: "wait"} }
	for name, tc := range map[string]struct {
		before, leaves, added int
		policy                func(*Policies)
		refused, settled      bool
	}{
		"nothing is removed":               {40, 0, 40, nil, false, true},
		"all are replaced":                 {40, 40, 40, nil, true, false},
		"all are replaced by many more":    {40, 40, 200, nil, true, false},
		"half is replaced":                 {40, 20, 20, nil, false, true},
		"more than half is replaced":       {40, 21, 200, nil, true, false},
		"a few are replaced":               {10, 10, 10, nil, false, true},
		"number before is not known":       {0, 20, 40, nil, false, true},
		"more than before, never complete": {5, 20, 40, nil, true, false},
		"handover not known yet":           {40, 20, 20, func(p *Policies) { p.HandoverTo = handoverTo }, false, false},
		"approved": {40, 40, 40, func(p *Policies) {
			p.ApprovedDigest = Digest(appliedObjects(40).entries)
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := appliedObjects(max(tc.before, tc.leaves) + tc.added)
			w.policy = tc.policy
			var keep []Item
			for i := tc.leaves; i < len(w.entries); i++ {
				keep = append(keep, item("c", fmt.Sprintf("o%03d", i)))
			}
			in := w.snapshot(Component{Name: "c", Items: keep})
			in.Inventory.settled = tc.before
			p := Reconcile(in)
			if refused := slices.ContainsFunc(p.Waits, func(a Action) bool {
				return a.Reason == ReasonApprovalRequired
			}); refused != tc.refused || p.Settled != tc.settled {
				t.Errorf("approval required: %t, settled: %t", refused, p.Settled)
			}
		})
	}
	w := fixture{entries: appliedObjects(1).entries, live: appliedObjects(1).live}
	if Reconcile(w.snapshot(Component{Name: "c", Items: []Item{item("c", "o000"), item("c", "new")}})).Settled {
		t.Error("settled before everything is applied")
	}
	in := w.snapshot()
	in.Inventory.MarkSettled(nil)
	if again := NewInventory(in.Inventory.Status(), nil); again.CountBefore(nil) != 1 || again.settled != 1 {
		t.Errorf("after a restart, %d are settled", again.settled)
	}
}

// Objects that an incomplete revision added may be removed when it is reverted: they do not count
// as objects before the change.
func TestDeleteLimitsOfARevertedChange(t *testing.T) {
	for name, tc := range map[string]struct {
		before, added int
		from, to      int // the objects that stay
		intended      int // added objects that were not created
		refused       string
	}{
		"all added objects":          {20, 15, 0, 20, 0, ""},
		"more than before":           {20, 30, 0, 20, 0, "30 of 50"},
		"half of them not created":   {20, 30, 0, 20, 15, ""},
		"too many, some not created": {20, 45, 0, 20, 20, "25 of 45"},
		"more than MaxDeletes":       {200, 51, 0, 200, 0, "51 of 251"},
		"reverted in part":           {20, 15, 0, 21, 0, "14 of 20"},
		"other objects than before":  {20, 15, 15, 35, 0, "15 of 20"},
		"only added objects stay":    {40, 40, 40, 80, 0, "40 of 40"},
		"one more than was added":    {20, 15, 0, 19, 0, "16 of 20"},
	} {
		t.Run(name, func(t *testing.T) {
			w := appliedObjects(tc.before)
			wanted := map[string]bool{}
			for _, e := range w.entries {
				wanted[e.ID] = true
			}
			inv := w.snapshot().Inventory
			inv.MarkSettled(wanted)
			var keep []Item
			for i := tc.from; i < tc.to; i++ {
				keep = append(keep, item("c", fmt.Sprintf("o%03d", i)))
			}
			w = appliedObjects(tc.before + tc.added)
			in := w.snapshot(Component{Name: "c", Items: keep})
			for i := range tc.intended {
				w.entries[len(w.entries)-1-i].State = appsv1.EntryIntended
			}
			status := inv.Status() // as persisted
			status.Entries = w.entries
			in.Inventory = NewInventory(status, nil)
			p := Reconcile(in)
			if tc.refused == "" && len(p.Removals) != tc.added {
				t.Errorf("%d are removed: %+v", len(p.Removals), p.Waits)
			}
			if tc.refused != "" &&
				(len(p.Waits) != 1 || !strings.HasPrefix(p.Waits[0].Message, tc.refused+" objects left the stack")) {
				t.Errorf("%d are removed: %+v", len(p.Removals), p.Waits)
			}
		})
	}
}

// Approved deletes continue without another approval when some of the objects are gone.
func TestApprovalCoversTheRemainingDeletes(t *testing.T) {
	w := appliedObjects(60)
	w.policy = func(p *Policies) { p.ApprovedDigest = Digest(appliedObjects(60).entries) }
	first := Reconcile(w.snapshot())
	if len(first.Intents) != 60 || len(first.Removals) != 60 {
		t.Fatalf("%d are recorded, %d are removed", len(first.Intents), len(first.Removals))
	}
	w.entries, w.policy = first.Intents[1:], nil
	if p := Reconcile(w.snapshot()); len(p.Removals) != 59 || len(p.Intents) != 0 {
		t.Errorf("%d are removed, %d are recorded", len(p.Removals), len(p.Intents))
	}
	back := w.entries[0]
	p := Reconcile((fixture{entries: w.entries[:1], live: w.live}).snapshot(Component{Name: "c",
		Items: []Item{item("c", "o001")}}))
	if len(p.Actions) != 1 || p.Actions[0].Verb != VerbRecord {
		t.Errorf("%s is desired again, but its approval is not revoked: %+v", back.ID, p.Actions)
	}
}

func TestPlanHandover(t *testing.T) {
	theirs := func(o *live.Object) { o.Mark.Owner = other.String() }
	handoverTo := func(string) HandoverDecision { return HandoverDecision{To: &other} }
	for name, tc := range map[string]struct {
		world     fixture
		successor func(string) HandoverDecision
		verb      Verb
		reason    Reason
	}{
		"not desired by others": {appliedObjects(1), func(string) HandoverDecision {
			return HandoverDecision{}
		}, VerbDelete, ReasonRemoved},
		"handover disabled":        {appliedObjects(1), nil, VerbDelete, ReasonRemoved},
		"desired by another owner": {appliedObjects(1), handoverTo, VerbHandOver, ReasonMoved},
		"not known yet": {appliedObjects(1), func(string) HandoverDecision {
			return HandoverDecision{Wait: "wait"}
		}, VerbWait, ReasonHandoverPending},
		"not known yet by an owner that takes over": {appliedObjects(1), func(string) HandoverDecision {
			return HandoverDecision{Wait: "wait", On: &other, TakesOver: true}
		}, VerbWait, ReasonSuccessorPending},
		"handed over already": {fixture{entries: appliedObjects(1).entries,
			live: []live.Object{liveObject("o000", theirs)}}, handoverTo, VerbDrop, ReasonOwnedByOther},
		"backing off": {fixture{entries: appliedObjects(1).entries, live: appliedObjects(1).live,
			backoffs: map[string]string{ref("o000").ID(): "no"}}, handoverTo, VerbWait, ReasonBackingOff},
		"shared namespace": {fixture{entries: []appsv1.InventoryEntry{{ID: stacks.Ref{Kind: "Namespace",
			Name: "x"}.ID(), Version: "v1",
			State: appsv1.EntryShared, Hash: "shared"}}}, handoverTo, VerbDelete, ReasonRemoved},
	} {
		for _, teardown := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, teardown %t", name, teardown), func(t *testing.T) {
				tc.world.policy = func(p *Policies) { p.HandoverTo = tc.successor }
				p := Reconcile(tc.world.snapshot())
				if teardown {
					p = Teardown(tc.world.snapshot())
				}
				all := slices.Concat(p.Removals, p.Waits)
				if len(all) != 1 || all[0].Verb != tc.verb || all[0].Reason != tc.reason {
					t.Errorf("got %+v, want %s/%s", all, tc.verb, tc.reason)
				}
			})
		}
	}
}

func TestTeardownWithOrphanPolicy(t *testing.T) {
	protected := func(o *live.Object) { o.Protected = true }
	w := fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied), entry("b", appsv1.EntryApplied),
		entry("c", appsv1.EntryIntended)},
		live: []live.Object{liveObject("a"), liveObject("b", protected)}, policy: func(p *Policies) { p.Orphan = true }}
	p := Teardown(w.snapshot())
	expectEqual(t, "removals", verbs(p.Removals), "release "+ref("a").ID(), "release "+ref("b").ID(),
		"release "+ref("c").ID())
	w.policy = nil
	p = Teardown(w.snapshot())
	expectEqual(t, "removals without Orphan", verbs(p.Removals), "delete "+ref("a").ID(), "delete "+ref("c").ID())
	expectEqual(t, "waits without Orphan", verbs(p.Waits), "wait "+ref("b").ID())
}

// As with helm uninstall, the live annotation decides.
func TestObjectsKeptByHelmAreReleased(t *testing.T) {
	kept := func(o *live.Object) { o.KeptByHelm = true }
	w := fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied), entry("b", appsv1.EntryApplied)},
		live: []live.Object{liveObject("a"), liveObject("b", kept)}}
	for name, removals := range map[string][]Action{"teardown": Teardown(w.snapshot()).Removals,
		"prune": Reconcile(w.snapshot()).Removals} {
		expectEqual(t, name, verbs(removals), "delete "+ref("a").ID(), "release "+ref("b").ID())
		if why := removals[1].Message; removals[1].Reason != ReasonKept ||
			why != "its annotation helm.sh/resource-policy is keep" {
			t.Errorf("%s: %s: %s", name, removals[1].Reason, why)
		}
	}
}

func TestBeingDeletedErrorMessage(t *testing.T) {
	for want, err := range map[string]*BeingDeletedError{
		"ConfigMap ns/a is being deleted": {Ref: ref("a")},
		"ConfigMap ns/a is being deleted: x is left": {Ref: ref("a"),
			Remaining: "x is left"},
		"ConfigMap ns/a is being deleted since 2026-01-02T03:04:05Z: waits for finalizers [x] set by m": {Ref: ref("a"),
			Finalizers: []string{"x"}, FinalizerManager: "m", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if e := (&ApprovalRequiredError{Deletes: 5, Total: 9, Digest: "abc"}).Error(); !strings.Contains(e,
		"ksctl.com/approve=abc") {
		t.Error(e)
	}
}

func TestDigest(t *testing.T) {
	a, b := appsv1.InventoryEntry{ID: "n_a__ConfigMap", UID: "1"}, appsv1.InventoryEntry{ID: "n_b__ConfigMap", UID: "2"}
	record := appsv1.InventoryEntry{ID: "n_sh.helm.release.v1.web.v1__Secret", UID: "3"}
	all := Digest([]appsv1.InventoryEntry{a, b, record})
	if other := Digest([]appsv1.InventoryEntry{record, b, a}); other != all || len(all) != 16 {
		t.Errorf("%s and, in another order, %s", all, other)
	}
	claimed, recreated := a, a
	claimed.State, recreated.UID = appsv1.EntryApplied, "9"
	if Digest([]appsv1.InventoryEntry{claimed, b, record}) != all {
		t.Error("the state of an entry changes the digest")
	}
	for name, set := range map[string][]appsv1.InventoryEntry{"one object less": {a, record}, "no record": {a, b},
		"recreated": {recreated, b, record}, "nothing": nil} {
		if Digest(set) == all {
			t.Errorf("%s: the same digest", name)
		}
	}
}
