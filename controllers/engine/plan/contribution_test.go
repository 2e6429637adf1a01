package plan

import (
	"errors"
	"slices"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// contributed returns the entry of a contribution to the ConfigMap "a".
func contributed(change ...func(*appsv1.InventoryEntry)) appsv1.InventoryEntry {
	e := appsv1.InventoryEntry{ID: ref("a").ID(), Version: "v1", Component: "c", State: appsv1.EntryContributed,
		UID: "uid", Hash: "want"}
	for _, f := range change {
		f(&e)
	}
	return e
}

func TestDecideContribution(t *testing.T) {
	entries := func(e ...appsv1.InventoryEntry) []appsv1.InventoryEntry { return e }
	intact := live.ContributedObject{UID: "uid"}
	sent := func(e *appsv1.InventoryEntry) { e.Hash, e.UID = "", "" }
	lost := func(e *appsv1.InventoryEntry) { e.Baseline = "AAAAAAAA" }
	warn := func(p *Policies) { p.Drift = appsv1.DriftWarn }
	for name, tc := range map[string]struct {
		world  fixture
		object *live.ContributedObject
		change func(*Item)
		verb   Verb
		reason Reason
		ready  bool
		intent bool
	}{
		"not observed": {verb: VerbWait, reason: ReasonIndexNotSynced, intent: true},
		"the watch is not synced": {world: fixture{syncErr: errors.New("stale")}, object: &intact, verb: VerbWait,
			reason: ReasonIndexNotSynced, intent: true},
		"the object does not exist": {object: &live.ContributedObject{}, verb: VerbWait, reason: ReasonAbsent,
			intent: true},
		"the object was deleted": {world: fixture{entries: entries(contributed())}, object: &live.ContributedObject{},
			verb: VerbWait, reason: ReasonAbsent},
		"the object is being deleted": {world: fixture{entries: entries(contributed())},
			object: &live.ContributedObject{UID: "uid", Deleting: true}, verb: VerbWait, reason: ReasonBeingDeleted},
		"new": {object: &intact, verb: VerbUpdate, reason: ReasonNew, intent: true},
		"recorded, not sent": {world: fixture{entries: entries(contributed(sent))}, object: &intact, verb: VerbUpdate,
			reason: ReasonNew},
		"it was to be created before": {world: fixture{entries: entries(entry("a", appsv1.EntryIntended))},
			object: &intact, verb: VerbUpdate, reason: ReasonNew, intent: true},
		"refused": {world: fixture{entries: entries(contributed()), backoffs: map[string]string{"a": "refused"}},
			object: &intact, verb: VerbRefuse, reason: ReasonBackingOff},
		"intact": {world: fixture{entries: entries(contributed())}, object: &intact, verb: VerbSkip,
			reason: ReasonUnchanged, ready: true},
		"of an object of another owner": {world: fixture{entries: entries(contributed()),
			live: []live.Object{liveObject("a", func(o *live.Object) { o.Mark.Owner = other.String() })}},
			object: &intact, verb: VerbSkip, reason: ReasonUnchanged, ready: true},
		"the object was created again": {world: fixture{entries: entries(contributed())},
			object: &live.ContributedObject{UID: "other"}, verb: VerbUpdate, reason: ReasonReclaimed},
		"other content": {world: fixture{entries: entries(contributed())}, object: &intact,
			change: func(it *Item) { it.ContentHash = "new" }, verb: VerbUpdate, reason: ReasonChanged},
		"another component": {world: fixture{entries: entries(contributed(func(e *appsv1.InventoryEntry) {
			e.Component = "before"
		}))}, object: &intact, verb: VerbUpdate, reason: ReasonChanged},
		"another wave": {world: fixture{entries: entries(contributed())}, object: &intact,
			change: func(it *Item) { it.Wave = 3 }, verb: VerbRecord, reason: ReasonMoved, ready: true},
		"a field was taken": {world: fixture{entries: entries(contributed(lost))}, object: &intact, verb: VerbUpdate,
			reason: ReasonDrifted},
		"a field was taken, and drift is not corrected": {world: fixture{entries: entries(contributed(lost)),
			policy: warn}, object: &intact, verb: VerbSkip, reason: ReasonDrifted, ready: true},
		"an own object": {world: fixture{entries: entries(entry("a", appsv1.EntryApplied)),
			live: []live.Object{liveObject("a")}}, object: &intact, verb: VerbRefuse, reason: ReasonInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			it := item("c", "a")
			it.Contribute = true
			if tc.change != nil {
				tc.change(&it)
			}
			in := tc.world.snapshot(Component{Name: "c", Items: []Item{it}})
			if tc.object != nil {
				in.Contributed = map[string]live.ContributedObject{it.ID: *tc.object}
			}
			a, ready := decideItem(in, &it)
			if a.Verb != tc.verb || a.Reason != tc.reason || ready != tc.ready {
				t.Errorf("%s %s %t, want %s %s %t", a.Verb, a.Reason, ready, tc.verb, tc.reason, tc.ready)
			}
			p := Reconcile(in)
			if intent := len(p.Intents) == 1 && p.Intents[0].State == appsv1.EntryContributed; intent != tc.intent {
				t.Errorf("intents %v", p.Intents)
			}
			if len(p.Removals) > 0 {
				t.Errorf("removals %v", p.Removals)
			}
		})
	}
}

// A contribution that becomes an object of the owner is withdrawn first.
func TestContributionIsWithdrawnBeforeTheObjectIsOwned(t *testing.T) {
	it := item("c", "a")
	in := fixture{entries: []appsv1.InventoryEntry{contributed()}}.snapshot(Component{Name: "c", Items: []Item{it}})
	p := Reconcile(in)
	if len(p.Actions) != 1 || p.Actions[0].Verb != VerbWithdraw || len(p.Intents) > 0 || p.Components[0].Ready {
		t.Errorf("plan %+v", p)
	}
}

// Contributions are withdrawn, never deleted, kept, handed over or counted by the guard.
func TestContributionsAreWithdrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		policy   func(*Policies)
		live     []live.Object
		backoffs map[string]string
		teardown bool
		verb     Verb
		reason   Reason
	}{
		"left the stack": {verb: VerbWithdraw, reason: ReasonRemoved},
		"no deletes are allowed": {policy: func(p *Policies) { p.MaxDeletes = 0 }, verb: VerbWithdraw,
			reason: ReasonRemoved},
		"a protected kind": {policy: func(p *Policies) { p.ProtectKinds = []string{"ConfigMap"} }, verb: VerbWithdraw,
			reason: ReasonRemoved},
		"no pruning":            {policy: func(p *Policies) { p.Prune = false }, verb: VerbDrop, reason: ReasonKept},
		"removal of everything": {teardown: true, verb: VerbWithdraw, reason: ReasonRemoved},
		"removal, of an object that is protected": {teardown: true, live: []live.Object{liveObject("a",
			func(o *live.Object) { o.Protected = true })}, verb: VerbWithdraw, reason: ReasonRemoved},
		"objects are orphaned": {teardown: true, policy: func(p *Policies) { p.Orphan = true }, verb: VerbDrop,
			reason: ReasonKept},
		"a failed withdrawal": {teardown: true, backoffs: map[string]string{ref("a").ID(): "forbidden"}, verb: VerbWait,
			reason: ReasonBackingOff},
		"the namespace is being deleted": {teardown: true, policy: func(p *Policies) { p.TerminatingNamespace = "ns" },
			verb: VerbDrop, reason: ReasonNamespaceDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			in := fixture{entries: []appsv1.InventoryEntry{contributed()}, policy: tc.policy, live: tc.live,
				backoffs: tc.backoffs}.snapshot()
			p := Reconcile(in)
			if tc.teardown {
				p = Teardown(in)
			}
			actions := slices.Concat(p.Removals, p.Waits)
			if len(actions) != 1 || actions[0].Verb != tc.verb || actions[0].Reason != tc.reason {
				t.Errorf("actions %+v, want %s %s", actions, tc.verb, tc.reason)
			}
			if e := contributed(); !in.Policies.Retains(&e) {
				t.Error("the object counts as one that is deleted")
			}
		})
	}
}

// Contributions are no objects of the owner: they do not raise the number that may be deleted.
func TestGuardDoesNotCountContributions(t *testing.T) {
	var entries []appsv1.InventoryEntry
	for _, name := range []string{"b", "c", "d", "e"} {
		entries = append(entries, entry(name, appsv1.EntryApplied))
	}
	for _, name := range []string{"f", "g", "h"} {
		entries = append(entries, contributed(func(e *appsv1.InventoryEntry) { e.ID = ref(name).ID() }))
	}
	inv := NewInventory(&appsv1.Inventory{Entries: entries}, nil)
	if n := inv.CountBefore(nil); n != 4 {
		t.Errorf("%d objects before the change", n)
	}
	inv.MarkSettled(nil)
	if n := inv.Status().Settled; n != 4 {
		t.Errorf("%d settled objects", n)
	}
}

func TestContributionManager(t *testing.T) {
	manager := ContributionManager(me, "c")
	if !live.IsContributionManager(manager) || live.IsContributionManager(live.FieldManager) {
		t.Errorf("manager %q", manager)
	}
	for name, tc := range map[string]struct {
		owner OwnerKey
		name  string
		same  bool
		owns  bool
	}{
		"same":              {me, "c", true, true},
		"another component": {me, "d", false, true},
		"another owner":     {other, "c", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ContributionManager(tc.owner, tc.name); (got == manager) != tc.same || len(got) > 128 {
				t.Errorf("manager %q", got)
			}
			if OwnsContributionManager(tc.owner, manager) != tc.owns {
				t.Errorf("owns: %t", !tc.owns)
			}
		})
	}
}
