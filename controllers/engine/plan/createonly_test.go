package plan

import (
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

func TestCreateOnlyObjects(t *testing.T) {
	applied := []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}
	intended := []appsv1.InventoryEntry{entry("a", appsv1.EntryIntended)}
	present := func(change ...func(*live.Object)) []live.Object { return []live.Object{liveObject("a", change...)} }
	theirs := func(o *live.Object) { o.Mark.Owner = other.String() }
	ignoreDrift := func(p *Policies) { p.Drift = appsv1.DriftIgnore }
	runs := func(it *Item) { it.RunsOnce = true }
	for name, tc := range map[string]struct {
		world   fixture
		existed bool
		change  func(*Item)
		verb    Verb
		reason  Reason
		ready   bool
		// drops is true if the entry is dropped, and intent if one is recorded.
		drops, intent bool
	}{
		"missing": {verb: VerbCreate, reason: ReasonNew, intent: true},
		"existed": {existed: true, verb: VerbSkip, reason: ReasonExisted, ready: true},
		"existed, after an intent": {world: fixture{entries: intended}, existed: true, verb: VerbSkip,
			reason: ReasonExisted, ready: true, drops: true},
		"of another owner": {world: fixture{live: present(theirs)}, verb: VerbSkip, reason: ReasonExisted, ready: true},
		"replaced by another client": {world: fixture{entries: applied}, existed: true, verb: VerbSkip,
			reason: ReasonExisted, ready: true, drops: true},
		"ours, taken by another owner": {world: fixture{entries: applied, live: present(theirs)}, verb: VerbRefuse,
			reason: ReasonOwnedByOther},
		"ours, unchanged": {world: fixture{entries: applied, live: present()}, verb: VerbSkip, reason: ReasonUnchanged,
			ready: true},
		"ours, with other content": {world: fixture{entries: applied, live: present()},
			change: func(it *Item) { it.ContentHash = "new" }, verb: VerbSkip, reason: ReasonUnchanged, ready: true},
		"ours, drifted": {world: fixture{entries: applied,
			live: present(func(o *live.Object) { o.OwnedHash = "BBBBBBBBBBBBBBBB" })}, verb: VerbSkip,
			reason: ReasonUnchanged, ready: true},
		"ours, not ready": {world: fixture{entries: applied,
			live: present(func(o *live.Object) { o.Readiness = live.InProgress })}, verb: VerbSkip,
			reason: ReasonUnchanged},
		"ours, in another component": {world: fixture{entries: applied, live: present()},
			change: func(it *Item) { it.Wave = 7 }, verb: VerbRecord, reason: ReasonMoved, ready: true},
		"ours, not recorded": {world: fixture{entries: intended, live: present()}, verb: VerbRecord,
			reason: ReasonReclaimed},
		"ours, from a backup": {world: fixture{entries: applied,
			live: present(func(o *live.Object) { o.UID = "restored" })}, verb: VerbRecord, reason: ReasonReclaimed},
		"ours, deleted": {world: fixture{entries: applied}, verb: VerbCreate, reason: ReasonMissing},
		"ours, deleted, and drift is ignored": {world: fixture{entries: applied, policy: ignoreDrift},
			change: func(it *Item) { it.ContentHash = "new" }, verb: VerbSkip, reason: ReasonMissing, ready: true},
		"ours, being deleted": {world: fixture{entries: applied,
			live: present(func(o *live.Object) { o.Deleting = true })}, verb: VerbWait, reason: ReasonBeingDeleted},
		"a Job that has ended": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryDone)}},
			change: func(it *Item) { runs(it); it.ContentHash = "new" }, verb: VerbSkip, reason: ReasonFinished,
			ready: true},
		"a Job that was deleted by its TTL": {world: fixture{entries: applied, succeeded: "uid"},
			change: func(it *Item) { runs(it); it.ContentHash = "new" }, verb: VerbRecord, reason: ReasonFinished,
			ready: true},
		"a hook": {world: fixture{entries: applied, live: present()}, change: func(it *Item) {
			it.Hook, it.ContentHash = &stacks.Hook{Phase: stacks.HookPre}, "new"
		}, verb: VerbUpdate, reason: ReasonChanged},
	} {
		t.Run(name, func(t *testing.T) {
			it := item("c", "a")
			it.CreateOnly = true
			if tc.change != nil {
				tc.change(&it)
			}
			in := tc.world.snapshot(Component{Name: "c", Items: []Item{it}})
			in.Existing = map[string]bool{it.ID: tc.existed}
			a, ready := decideItem(in, &it)
			if a.Verb != tc.verb || a.Reason != tc.reason || ready != tc.ready {
				t.Errorf("%s %s %t, want %s %s %t", a.Verb, a.Reason, ready, tc.verb, tc.reason, tc.ready)
			}
			p := Reconcile(in)
			if drops := len(p.Removals) == 1 && p.Removals[0].Verb == VerbDrop; drops != tc.drops {
				t.Errorf("removals %v", p.Removals)
			}
			if len(p.Intents) > 0 != tc.intent {
				t.Errorf("intents %v", p.Intents)
			}
		})
	}
}
