package plan

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

var retainNow = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

// retaining is a component that keeps the last objects of each kind.
func retaining(last int32, items ...Item) Component {
	return Component{Name: "c", Retain: &last, Items: items}
}

// leftAt returns an entry whose object left the stack some seconds before retainNow.
func leftAt(e appsv1.InventoryEntry, seconds int) appsv1.InventoryEntry {
	e.RetainedAt = new(metav1.NewMicroTime(retainNow.Add(-time.Duration(seconds) * time.Second)))
	return e
}

func jobEntry(name string, state appsv1.EntryState) appsv1.InventoryEntry {
	e := entry(name, state)
	e.ID = jobRef(name).ID()
	return e
}

func runsOnceItem(name string) Item {
	it := item("c", name)
	it.Ref, it.ID, it.RunsOnce = jobRef(name), jobRef(name).ID(), true
	return it
}

// liveJob returns a Job that runs, unless it has ended.
func liveJob(name string, ended bool, change ...func(*live.Object)) live.Object {
	o := liveObject(name, change...)
	o.Ref, o.Mark.ID, o.Finished = jobRef(name), jobRef(name).ID(), ended
	if !ended {
		o.Readiness = live.InProgress
	}
	return o
}

func protected(o *live.Object) { o.Protected = true }

func TestRetainedObjects(t *testing.T) {
	applied, done := appsv1.EntryApplied, appsv1.EntryDone
	type entries = []appsv1.InventoryEntry
	type objects = []live.Object
	noPrune := func(p *Policies) { p.Prune = false }
	decide := func(d HandoverDecision) func(*Policies) {
		return func(p *Policies) { p.HandoverTo = func(string) HandoverDecision { return d } }
	}
	for name, tc := range map[string]struct {
		world   fixture
		desired Component
		// retained are the objects that the plan records as retained.
		retained                []string
		actions, removes, waits []string
	}{
		"an object that left stays": {fixture{entries: entries{entry("old", applied)},
			live: objects{liveObject("old")}}, retaining(1, item("c", "new")), []string{"old"}, []string{"create new"},
			nil, nil},
		"no other object is removed meanwhile": {fixture{entries: entries{leftAt(entry("old", applied), 9),
			entry("new", applied)}, live: objects{liveObject("old"), liveObject("new")}},
			retaining(1, item("c", "new")), nil, nil, nil, nil},
		"the last ones stay": {fixture{entries: entries{leftAt(entry("a", applied), 3), leftAt(entry("b", applied), 1),
			leftAt(entry("c", applied), 2), entry("old", applied)},
			live: objects{liveObject("a"), liveObject("b"), liveObject("c"), liveObject("old")}},
			retaining(2, item("c", "new")), []string{"old"}, []string{"create new"},
			[]string{"delete a", "delete c"}, nil},
		"each kind is counted": {fixture{entries: entries{leftAt(entry("a", applied), 3), entry("old", applied),
			leftAt(jobEntry("j", done), 2)}, live: objects{liveObject("a"), liveObject("old"), liveJob("j", true)}},
			retaining(1), []string{"old"}, nil, []string{"delete a"}, nil},
		"none stays": {fixture{entries: entries{entry("old", applied), leftAt(entry("a", applied), 1)},
			live: objects{liveObject("old"), liveObject("a")}},
			retaining(0), nil, nil, []string{"delete a", "delete old"}, nil},
		"without retain": {fixture{entries: entries{entry("old", applied), leftAt(entry("a", applied), 1)},
			live: objects{liveObject("old"), liveObject("a")}},
			Component{Name: "c"}, nil, nil, []string{"delete a", "delete old"}, nil},
		"of a component that left": {fixture{entries: entries{leftAt(entry("a", applied), 1)},
			live: objects{liveObject("a")}}, Component{Name: "other"}, nil, nil, []string{"delete a"}, nil},
		"drift is not corrected": {fixture{entries: entries{leftAt(entry("old", applied), 1)}, live: objects{
			liveObject("old", func(o *live.Object) { o.OwnedHash, o.Readiness = "BBBBBBBBBBBBBBBB", live.Failed })}},
			retaining(1), nil, nil, nil, nil},
		"a missing one is forgotten": {fixture{entries: entries{leftAt(entry("old", applied), 1)}},
			retaining(1), nil, nil, []string{"drop old"}, nil},
		"one that another client recreated is forgotten": {fixture{entries: entries{leftAt(entry("old", applied), 1)},
			live: objects{liveObject("old", func(o *live.Object) { o.UID = "other" })}},
			retaining(1), nil, nil, []string{"drop old"}, nil},
		"one whose state is unknown stays": {fixture{entries: entries{leftAt(entry("old", applied), 1)},
			syncErr: errors.New("not synced")}, retaining(1), nil, nil, nil, nil},
		"a namespace that is shared does not": {fixture{entries: entries{entry("old", appsv1.EntryShared)}},
			retaining(1), nil, nil, []string{"delete old"}, nil},
		"content that comes back": {fixture{entries: entries{leftAt(entry("old", applied), 1)},
			live: objects{liveObject("old")}}, retaining(1, item("c", "old")), nil, []string{"record old"}, nil, nil},
		"a Job that comes back does not run again": {fixture{entries: entries{leftAt(jobEntry("j", done), 1)},
			live: objects{liveJob("j", true)}}, retaining(1, runsOnceItem("j")), nil, []string{"record j"}, nil, nil},

		"a Job that ended stays": {fixture{entries: entries{jobEntry("old", applied)},
			live: objects{liveJob("old", true)}},
			retaining(1, runsOnceItem("new")), []string{"old"}, []string{"create new"}, nil, nil},
		"a Job that runs is deleted before the next one starts": {
			fixture{entries: entries{jobEntry("old", applied)}, live: objects{liveJob("old", false)}},
			retaining(1, runsOnceItem("new"), item("c", "config")), nil, []string{"create config"},
			[]string{"delete old"},
			[]string{"wait new"}},
		"and is gone": {fixture{entries: entries{jobEntry("old", applied)}, live: objects{liveJob("old", false)},
			pendingDeletions: map[string]types.UID{jobRef("old").ID(): "uid"}},
			retaining(1, runsOnceItem("new")), nil, nil, nil, []string{"wait new", "wait old"}},
		"a Job that must not be deleted": {
			fixture{entries: entries{jobEntry("old", applied)}, live: objects{liveJob("old", false, protected)}},
			retaining(1, runsOnceItem("new")), nil, nil, nil, []string{"wait new", "wait old"}},
		"a Job that may still be created": {fixture{entries: entries{jobEntry("old", appsv1.EntryIntended)},
			unsettled: map[string]string{jobRef("old").ID(): "may be created"}},
			retaining(1, runsOnceItem("new")), nil, nil, nil, []string{"wait new", "wait old"}},
		"a Job whose state is unknown": {fixture{entries: entries{jobEntry("old", applied)},
			syncErr: errors.New("not synced")}, retaining(1, runsOnceItem("new")), nil, nil, nil,
			[]string{"wait new", "wait old"}},

		"nothing is deleted without prune": {fixture{entries: entries{leftAt(entry("a", applied), 2),
			entry("old", applied), jobEntry("j", applied)},
			live: objects{liveObject("a"), liveObject("old"), liveJob("j", false)}, policy: noPrune},
			retaining(1, runsOnceItem("new")), []string{"old"}, []string{"create new"},
			[]string{"release a", "release j"}, nil},
		"what another owner desires is handed over": {fixture{entries: entries{leftAt(entry("a", applied), 2)},
			live: objects{liveObject("a")}, policy: decide(HandoverDecision{To: &other})},
			retaining(1), nil, nil, []string{"hand over a"}, nil},
		"what another owner may desire waits only to be deleted": {fixture{
			entries: entries{leftAt(entry("a", applied), 2), entry("old", applied)},
			live:    objects{liveObject("a"), liveObject("old")},
			policy:  decide(HandoverDecision{Wait: "not planned", On: &other})},
			retaining(1), []string{"old"}, nil, nil, []string{"wait a"}},
		"outside the guard": {fixture{entries: entries{leftAt(entry("a", applied), 2), leftAt(entry("b", applied), 1)},
			live: objects{liveObject("a"), liveObject("b")}, policy: func(p *Policies) { p.MaxDeletes = 0 }},
			retaining(0), nil, nil, []string{"delete a", "delete b"}, nil},
		"also when their component leaves": {fixture{entries: entries{leftAt(entry("a", applied), 2)},
			live: objects{liveObject("a")}, policy: func(p *Policies) { p.MaxDeletes = 0 }},
			Component{Name: "other"}, nil, nil, []string{"delete a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := tc.world.snapshot(tc.desired)
			in.Now = retainNow
			p := Reconcile(in)
			var retained []string
			for _, e := range p.Intents {
				if e.RetainedAt != nil {
					r, _ := stacks.ParseID(e.ID)
					retained = append(retained, r.Name)
				}
			}
			expectEqual(t, "retained", retained, tc.retained...)
			expectEqual(t, "actions", actionNames(p.Actions), tc.actions...)
			removes, waits := actionNames(p.Removals), actionNames(p.Waits)
			slices.Sort(removes)
			slices.Sort(waits)
			expectEqual(t, "removals", removes, tc.removes...)
			expectEqual(t, "waits", waits, tc.waits...)
		})
	}
}

// An object that left later is newer on every clock: another controller may have recorded the
// others.
func TestRetainedObjectsAreOrderedDespiteTheClock(t *testing.T) {
	in := fixture{entries: []appsv1.InventoryEntry{leftAt(entry("future", appsv1.EntryApplied), -60),
		entry("old", appsv1.EntryApplied)}, live: []live.Object{liveObject("future"), liveObject("old")}}.
		snapshot(retaining(1))
	in.Now = retainNow
	p := Reconcile(in)
	expectEqual(t, "removals", actionNames(p.Removals), "delete future")
	if len(p.Intents) != 1 || !p.Intents[0].RetainedAt.After(retainNow.Add(time.Minute)) {
		t.Errorf("recorded %+v", p.Intents)
	}
}

// Removal takes retained objects, too.
func TestTeardownRemovesRetainedObjects(t *testing.T) {
	in := fixture{entries: []appsv1.InventoryEntry{leftAt(entry("a", appsv1.EntryApplied), 1),
		leftAt(jobEntry("j", appsv1.EntryDone), 1)}, live: []live.Object{liveObject("a"), liveJob("j", true)}}.
		snapshot()
	expectEqual(t, "removals", actionNames(Teardown(in).Removals), "delete a", "delete j")
	in = fixture{entries: []appsv1.InventoryEntry{leftAt(entry("a", appsv1.EntryApplied), 1)},
		live: []live.Object{liveObject("a")}, policy: func(p *Policies) {
			p.RemovalRequest = func(*appsv1.InventoryEntry) *RemovalRequest {
				return &RemovalRequest{KeepReason: func(stacks.Ref) string { return "" }}
			}
		}}.snapshot(retaining(1))
	expectEqual(t, "requested", actionNames(Reconcile(in).Removals), "delete a")
}

// Retained objects do not raise the number of deletes that the guard allows.
func TestRetainedObjectsAreNotCounted(t *testing.T) {
	inv := NewInventory(&appsv1.Inventory{Entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied),
		leftAt(entry("b", appsv1.EntryApplied), 1)}}, nil)
	if n := inv.CountBefore(nil); n != 1 {
		t.Errorf("%d entries before the first change, want 1", n)
	}
	inv.MarkSettled(map[string]bool{})
	if inv.settled != 1 {
		t.Errorf("%d settled entries, want 1", inv.settled)
	}
}
