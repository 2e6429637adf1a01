package plan

import (
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

var (
	me    = OwnerKey{Installation: "x", Cluster: LocalCluster, Kind: "KsctlInstall", Namespace: "ns", Name: "me"}
	other = OwnerKey{Installation: "x", Cluster: LocalCluster, Kind: "KsctlInstall", Namespace: "ns", Name: "other"}
)

const base = "AAAAAAAAAAAAAAAA"

func ref(name string) stacks.Ref { return stacks.Ref{Kind: "ConfigMap", Namespace: "ns", Name: name} }

func item(component, name string) Item {
	r := ref(name)
	return Item{Object: stacks.Object{Ref: r, Version: "v1"}, ID: r.ID(), ContentHash: "want", Component: component}
}

func entry(name string, state appsv1.EntryState) appsv1.InventoryEntry {
	e := appsv1.InventoryEntry{ID: ref(name).ID(), Version: "v1", Component: "c", State: state}
	if state != appsv1.EntryIntended {
		e.UID, e.Hash, e.Baseline = "uid", "want", base
	}
	return e
}

func liveObject(name string, change ...func(*live.Object)) live.Object {
	o := live.Object{Ref: ref(name), Version: "v1", UID: "uid", Readiness: live.Current, OwnedHash: base,
		Mark: live.Mark{Owner: me.String(), ID: ref(name).ID()}}
	for _, f := range change {
		f(&o)
	}
	return o
}

// fixture is the content of a snapshot.
type fixture struct {
	entries          []appsv1.InventoryEntry
	live             []live.Object
	backoffs         map[string]string
	pendingDeletions map[string]types.UID
	unsettled        map[string]string
	syncErr          error
	// succeeded is the uid of a Job that was observed to succeed.
	succeeded types.UID
	policy    func(*Policies)
}

func (w fixture) snapshot(components ...Component) *Snapshot {
	in := &Snapshot{Owner: me, Components: components, Policies: DefaultPolicies,
		Inventory: NewInventory(&appsv1.Inventory{Entries: w.entries}, nil)}
	if w.policy != nil {
		w.policy(&in.Policies)
	}
	in.Objects, in.Succeeded = map[string]*live.Object{}, map[string]bool{}
	in.SyncErrors, in.Backoffs, in.PendingDeletions = map[schema.GroupKind]error{}, map[string]Backoff{},
		w.pendingDeletions
	in.Unsettled = w.unsettled
	if decide := in.Policies.HandoverTo; decide != nil { // as the engine does
		in.Handovers, in.Policies.HandoverTo = map[string]HandoverDecision{}, func(string) HandoverDecision {
			panic("planning decides about handovers")
		}
		for _, e := range w.entries {
			in.Handovers[e.ID] = decide(e.ID)
		}
	}
	for i := range w.live {
		in.Objects[w.live[i].Ref.ID()] = &w.live[i]
	}
	for _, e := range w.entries {
		if r, err := stacks.ParseID(e.ID); err == nil {
			in.SyncErrors[r.GroupKind()] = w.syncErr
		}
		in.Succeeded[e.ID] = e.UID != "" && e.UID == w.succeeded
		if m := w.backoffs[e.ID]; m != "" {
			in.Backoffs[e.ID] = Backoff{Message: m}
		}
	}
	for _, c := range components {
		for _, it := range c.Items {
			in.SyncErrors[it.GroupKind()] = w.syncErr
			if m := w.backoffs[it.Name]; m != "" {
				in.Backoffs[it.ID] = Backoff{Message: m, ContentHash: it.ContentHash}
			}
		}
	}
	return in
}

func TestDecideItem(t *testing.T) {
	for name, tc := range map[string]struct {
		world  fixture
		change func(*Item)
		verb   Verb
		reason Reason
		ready  bool
	}{
		"new object": {verb: VerbCreate, reason: ReasonNew},
		"intended, missing": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryIntended)}},
			verb: VerbCreate, reason: ReasonNew},
		"intended, existing": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryIntended)},
			live: []live.Object{liveObject("a")}}, verb: VerbUpdate, reason: ReasonReclaimed},
		"not in the inventory": {world: fixture{live: []live.Object{liveObject("a")}}, verb: VerbUpdate,
			reason: ReasonReclaimed},
		"unchanged": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a")}}, verb: VerbSkip, reason: ReasonUnchanged, ready: true},
		"not ready": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.Readiness = live.InProgress })}},
			verb: VerbSkip, reason: ReasonUnchanged},
		"content changed": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a")}},
			change: func(it *Item) { it.ContentHash = "new" }, verb: VerbUpdate, reason: ReasonChanged},
		"drifted": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.OwnedHash = "BBBBBBBBBBBBBBBB" })}},
			verb: VerbUpdate, reason: ReasonDrifted},
		"drifted, with mode Warn": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.OwnedHash = "BBBBBBBBBBBBBBBB" })},
			policy: func(p *Policies) {
				p.Drift = appsv1.DriftWarn
			}}, verb: VerbSkip, reason: ReasonDrifted, ready: true},
		"drifted, with mode Ignore": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.OwnedHash = "BBBBBBBBBBBBBBBB" })},
			policy: func(p *Policies) {
				p.Drift = appsv1.DriftIgnore
			}}, verb: VerbSkip, reason: ReasonDrifted, ready: true},
		"label lost": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.LabelLost = true })}}, verb: VerbUpdate,
			reason: ReasonDrifted},
		"reclaimed by its former tool": {
			world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
				live:   []live.Object{liveObject("a", func(o *live.Object) { o.TrackedByTool = true })},
				policy: func(p *Policies) { p.Adopt = appsv1.AdoptAlways }}, verb: VerbUpdate, reason: ReasonDrifted},
		"marked by another tool": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.TrackedByTool = true })}},
			verb: VerbSkip, reason: ReasonUnchanged, ready: true},
		"deleted by another client": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}},
			verb: VerbCreate, reason: ReasonMissing},
		"deleted, with mode Ignore": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			policy: func(p *Policies) {
				p.Drift = appsv1.DriftIgnore
			}}, verb: VerbSkip, reason: ReasonMissing, ready: true},
		"recreated with our mark": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.UID = "another" })}}, verb: VerbUpdate,
			reason: ReasonReclaimed},
		"owned by another install": {world: fixture{live: []live.Object{liveObject("a", func(o *live.Object) {
			o.Mark.Owner = other.String()
		})}}, verb: VerbRefuse, reason: ReasonOwnedByOther},
		"being deleted": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.Deleting = true })}}, verb: VerbWait,
			reason: ReasonBeingDeleted},
		"deletion accepted": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live:             []live.Object{liveObject("a")},
			pendingDeletions: map[string]types.UID{ref("a").ID(): "uid"}}, verb: VerbWait, reason: ReasonBeingDeleted},
		"completed hook that is gone": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryDone)}},
			change: func(it *Item) { it.RunsOnce = true }, verb: VerbSkip, reason: ReasonFinished, ready: true},
		"completed Job": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a")}},
			change: func(it *Item) { it.RunsOnce = true }, verb: VerbRecord, reason: ReasonFinished, ready: true},
		"completed Job that is gone": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			succeeded: "uid"},
			change: func(it *Item) { it.RunsOnce = true }, verb: VerbRecord, reason: ReasonFinished, ready: true},
		"completed Job with new content": {
			world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
				succeeded: "uid"},
			change: func(it *Item) {
				it.RunsOnce, it.ContentHash = true, "another"
			}, verb: VerbCreate, reason: ReasonChanged},
		"backing off": {world: fixture{backoffs: map[string]string{"a": "wait"}}, verb: VerbRefuse,
			reason: ReasonBackingOff},
		"index not synced": {world: fixture{syncErr: errors.New("x")}, verb: VerbWait, reason: ReasonIndexNotSynced},
		"kind not served yet": {change: func(it *Item) {
			it.ResolveErr = &NotServedError{GVK: schema.GroupVersionKind{Group: "g.io", Kind: "K"}}
		},
			verb: VerbWait, reason: ReasonNotServed},
		"unknown built-in kind": {change: func(it *Item) {
			it.ResolveErr = &NotServedError{GVK: schema.GroupVersionKind{Group: "apps", Kind: "K"}, BuiltIn: true}
		}, verb: VerbRefuse, reason: ReasonInvalid},
		"invalid": {change: func(it *Item) {
			it.ResolveErr = &InvalidObjectError{Why: "no"}
		}, verb: VerbRefuse, reason: ReasonInvalid},
		"moved to another wave": {world: fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a")}},
			change: func(it *Item) { it.Wave = 3 }, verb: VerbRecord, reason: ReasonMoved, ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			it := item("c", "a")
			if tc.change != nil {
				tc.change(&it)
			}
			a, ready := decideItem(tc.world.snapshot(Component{Name: "c", Items: []Item{it}}), &it)
			if a.Verb != tc.verb || a.Reason != tc.reason || ready != tc.ready {
				t.Errorf("got %s/%s ready=%t, want %s/%s ready=%t (%s)", a.Verb, a.Reason, ready, tc.verb, tc.reason,
					tc.ready, a.Message)
			}
			if (a.Verb == VerbWait || a.Verb == VerbRefuse) && a.Message == "" {
				t.Error("the action has no message")
			}
		})
	}
}

// A back-off counts for the content that failed. Other content is written at once.
func TestBackoffEndsWithNewContent(t *testing.T) {
	it := item("c", "a")
	in := fixture{backoffs: map[string]string{"a": "no"}}.snapshot(Component{Name: "c", Items: []Item{it}})
	if a, _ := decideItem(in, &it); a.Reason != ReasonBackingOff {
		t.Errorf("the content that failed: %s/%s", a.Verb, a.Reason)
	}
	it.ContentHash = "corrected"
	if a, _ := decideItem(in, &it); a.Verb != VerbCreate {
		t.Errorf("other content: %s/%s", a.Verb, a.Reason)
	}
	if a := decideRemoval(in, entry("a", appsv1.EntryApplied), it.Ref); a.Reason == ReasonBackingOff {
		t.Error("the removal is backed off, too")
	}
}

func TestDecideRemoval(t *testing.T) {
	space := stacks.Ref{Kind: "Namespace", Name: "space"}
	shared := appsv1.InventoryEntry{ID: space.ID(), Version: "v1", State: appsv1.EntryShared, Hash: "shared"}
	definition := func(name string) (fixture, appsv1.InventoryEntry) {
		r := stacks.Ref{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: name}
		return fixture{live: []live.Object{{Ref: r, UID: "uid", Mark: live.Mark{Owner: me.String(), ID: r.ID()}}},
				policy: func(p *Policies) { p.Adopt = appsv1.AdoptAlways }},
			appsv1.InventoryEntry{ID: r.ID(), Version: "v1", UID: "uid", State: appsv1.EntryApplied}
	}
	own, ownEntry := definition("ksctlinstalls.apps.ksctl.com")
	foreign, foreignEntry := definition("widgets.example.com")
	for name, tc := range map[string]struct {
		world  fixture
		entry  appsv1.InventoryEntry
		verb   Verb
		reason Reason
	}{
		"applied": {fixture{live: []live.Object{liveObject("a")}}, entry("a", appsv1.EntryApplied),
			VerbDelete, ReasonRemoved},
		"intended and created": {fixture{live: []live.Object{liveObject("a")}}, entry("a", appsv1.EntryIntended),
			VerbDelete, ReasonRemoved},
		"not known to the index": {fixture{}, entry("a", appsv1.EntryApplied), VerbDelete, ReasonUnconfirmed},
		"adopted": {fixture{live: []live.Object{liveObject("a")}}, entry("a", appsv1.EntryAdopted),
			VerbRelease, ReasonRemoved},
		"owned by another owner": {fixture{live: []live.Object{liveObject("a", func(o *live.Object) {
			o.Mark.Owner = other.String()
		})}}, entry("a", appsv1.EntryApplied), VerbDrop, ReasonOwnedByOther},
		"recreated by others": {fixture{live: []live.Object{liveObject("a", func(o *live.Object) {
			o.UID = "another"
		})}}, entry("a", appsv1.EntryApplied), VerbDrop, ReasonOwnedByOther},
		"being deleted": {fixture{live: []live.Object{liveObject("a", func(o *live.Object) {
			o.Deleting = true
		})}}, entry("a", appsv1.EntryApplied), VerbWait, ReasonBeingDeleted},
		"deletion accepted": {fixture{live: []live.Object{liveObject("a")},
			pendingDeletions: map[string]types.UID{ref("a").ID(): "uid"}}, entry("a", appsv1.EntryApplied), VerbWait,
			ReasonBeingDeleted},
		"being deleted, not watched": {fixture{live: []live.Object{liveObject("a", func(o *live.Object) {
			o.Deleting, o.LabelLost = true, true
		})}},
			entry("a", appsv1.EntryApplied), VerbDelete, ReasonUnconfirmed},
		"shared namespace": {fixture{}, shared, VerbDelete, ReasonRemoved},
		"protected namespace": {fixture{policy: func(p *Policies) {
			p.ProtectKinds = []string{"Namespace"}
		}}, shared, VerbRelease, ReasonKept},
		"definition of a kind of this controller": {own, ownEntry, VerbRelease, ReasonKept},
		"definition of another kind":              {foreign, foreignEntry, VerbDelete, ReasonRemoved},
		"released": {fixture{live: []live.Object{liveObject("a")},
			policy: func(p *Policies) {
				p.Released = map[string]string{ref("a").ID(): "no"}
			}}, entry("a", appsv1.EntryApplied), VerbRelease, ReasonKept},
		"possibly created": {fixture{unsettled: map[string]string{ref("a").ID(): "perhaps"}},
			entry("a", appsv1.EntryIntended), VerbWait, ReasonUnconfirmed},
		"index not synced": {fixture{syncErr: errors.New("x")}, entry("a", appsv1.EntryApplied),
			VerbWait, ReasonIndexNotSynced},
		"backing off": {fixture{backoffs: map[string]string{ref("a").ID(): "no"}},
			entry("a", appsv1.EntryApplied), VerbWait, ReasonBackingOff},
	} {
		t.Run(name, func(t *testing.T) {
			what, err := stacks.ParseID(tc.entry.ID)
			if err != nil {
				t.Fatal(err)
			}
			tc.world.entries = []appsv1.InventoryEntry{tc.entry}
			a := decideRemoval(tc.world.snapshot(), tc.entry, what)
			if a.Verb != tc.verb || a.Reason != tc.reason {
				t.Errorf("got %s/%s, want %s/%s", a.Verb, a.Reason, tc.verb, tc.reason)
			}
		})
	}
}

func verbs(actions []Action) (out []string) {
	for _, a := range actions {
		name := a.Entry.ID
		if a.Item != nil {
			name = a.Item.Name
		}
		out = append(out, string(a.Verb)+" "+name)
	}
	return out
}

func expectEqual(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: got %v, want %v", what, got, want)
			return
		}
	}
}

// What another owner desires is handed over at once: a component may wait for an object of that
// owner. Deletes wait until everything is applied.
func TestHandoverDoesNotWaitForComponents(t *testing.T) {
	w := fixture{entries: []appsv1.InventoryEntry{entry("moved", appsv1.EntryApplied),
		entry("dropped", appsv1.EntryApplied)},
		live: []live.Object{liveObject("moved"), liveObject("dropped"), liveObject("wanted", func(o *live.Object) {
			o.Mark.Owner = other.String()
		})},
		policy: func(p *Policies) {
			p.HandoverTo = func(id string) (d HandoverDecision) {
				if id == ref("moved").ID() {
					d.To = &other
				}
				return d
			}
		}}
	p := Reconcile(w.snapshot(Component{Name: "c", Items: []Item{item("c", "wanted")}}))
	expectEqual(t, "removals", verbs(p.Removals), "hand over "+ref("moved").ID())
	if len(p.Waits) != 2 || p.Waits[1].Reason != ReasonBlocked ||
		p.Waits[1].Message != "1 object is removed after everything else is applied" {
		t.Errorf("waits: %+v", p.Waits)
	}
	if p.Settled {
		t.Error("the plan is settled")
	}
}

// In a terminating namespace, a removal waits for the objects, and sends nothing. What comes later
// in the order, such as the operator that finalizes them, stays until they are gone.
func TestTeardownWaitsForTerminatingNamespace(t *testing.T) {
	custom, operator := entry("custom", appsv1.EntryApplied), entry("operator", appsv1.EntryApplied)
	custom.Wave = 1
	elsewhere := ref("operator")
	elsewhere.Namespace = "operators"
	operator.ID = elsewhere.ID()
	controller := liveObject("operator", func(o *live.Object) { o.Ref, o.Mark.ID = elsewhere, elsewhere.ID() })
	w := fixture{entries: []appsv1.InventoryEntry{custom, operator},
		live:   []live.Object{liveObject("custom"), controller},
		policy: func(p *Policies) { p.TerminatingNamespace = "ns" }}
	p := Teardown(w.snapshot())
	if len(p.Removals) != 0 || len(p.Waits) != 1 ||
		p.Waits[0].Message != "ConfigMap ns/custom is deleted with its namespace" {
		t.Errorf("%+v", p)
	}
	w.live = []live.Object{controller}
	p = Teardown(w.snapshot())
	expectEqual(t, "removals", verbs(p.Removals), "drop "+custom.ID)
}

// An object that may still be created is not handed over: there may never be one.
func TestPossiblyCreatedObjectIsNotHandedOver(t *testing.T) {
	w := fixture{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryIntended)},
		unsettled: map[string]string{ref("a").ID(): "perhaps"},
		policy: func(p *Policies) {
			p.HandoverTo = func(string) HandoverDecision { return HandoverDecision{To: &other} }
		}}
	for name, makePlan := range map[string]func(*Snapshot) Plan{"reconcile": Reconcile, "teardown": Teardown} {
		p := makePlan(w.snapshot())
		if len(p.Removals) != 0 || len(p.Waits) != 1 || p.Waits[0].Message != "perhaps" {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// An invalid object of the inventory is released although its component never becomes ready.
func TestReleasedObjectsDoNotWaitForComponents(t *testing.T) {
	bad := item("c", "parent")
	bad.ResolveErr = &InvalidObjectError{Why: "it applies this stack"}
	w := fixture{entries: []appsv1.InventoryEntry{entry("parent", appsv1.EntryApplied)},
		live:   []live.Object{liveObject("parent")},
		policy: func(p *Policies) { p.Released = map[string]string{ref("parent").ID(): "it applies this stack"} }}
	p := Reconcile(w.snapshot(Component{Name: "c", Items: []Item{bad, item("c", "a")}}))
	expectEqual(t, "removals", verbs(p.Removals), "release "+ref("parent").ID())
	expectEqual(t, "actions", verbs(p.Actions), "create a")
	if len(p.Intents) != 1 || p.Intents[0].ID != ref("a").ID() {
		t.Errorf("intents: %+v", p.Intents)
	}
}

func TestPlanOrder(t *testing.T) {
	one := Component{Name: "one", Items: []Item{item("one", "a")}}
	two := Component{Name: "two", DependsOn: []string{"one"}, Wave: 1, Items: []Item{item("two", "b")}}
	three := Component{Name: "three", Items: []Item{item("three", "c")}}
	applied := func(name, component string) appsv1.InventoryEntry {
		e := entry(name, appsv1.EntryApplied)
		e.Component = component
		return e
	}

	t.Run("a component waits for its dependencies, others do not", func(t *testing.T) {
		p := Reconcile(fixture{}.snapshot(one, two, three))
		expectEqual(t, "actions", verbs(p.Actions), "create a", "create c")
		if len(p.Intents) != 3 {
			t.Errorf("%d intents, want one for each object", len(p.Intents))
		}
		if p.Components[1].Message != "waits for component one" {
			t.Errorf("message %q", p.Components[1].Message)
		}
	})
	t.Run("a component that is not ready blocks its dependents", func(t *testing.T) {
		w := fixture{entries: []appsv1.InventoryEntry{applied("a", "one")},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.Readiness = live.InProgress })}}
		p := Reconcile(w.snapshot(one, two))
		expectEqual(t, "actions", verbs(p.Actions))
	})
	t.Run("applied content is restored without waiting", func(t *testing.T) {
		b := applied("b", "two")
		b.Wave = 1
		w := fixture{entries: []appsv1.InventoryEntry{applied("a", "one"), b},
			live: []live.Object{liveObject("a", func(o *live.Object) { o.Readiness = live.InProgress })}}
		two := two
		two.Items = []Item{item("two", "b")}
		two.Items[0].Wave = 1
		p := Reconcile(w.snapshot(one, two))
		expectEqual(t, "actions", verbs(p.Actions), "create b")
	})
	t.Run("nothing is pruned before everything is applied", func(t *testing.T) {
		w := fixture{entries: []appsv1.InventoryEntry{entry("old", appsv1.EntryApplied)},
			live: []live.Object{liveObject("old")}}
		p := Reconcile(w.snapshot(one))
		if len(p.Removals) != 0 {
			t.Errorf("removals %v", verbs(p.Removals))
		}
		w = fixture{entries: []appsv1.InventoryEntry{applied("c", "three"), entry("old", appsv1.EntryApplied)},
			live: []live.Object{liveObject("c"), liveObject("old")}}
		if p := Reconcile(w.snapshot(one, three)); len(p.Removals) != 0 {
			t.Errorf("removals %v before an earlier component is applied", verbs(p.Removals))
		}
		w = fixture{entries: []appsv1.InventoryEntry{applied("a", "one"), entry("old", appsv1.EntryApplied)},
			live: []live.Object{liveObject("a"), liveObject("old")}}
		p = Reconcile(w.snapshot(one))
		expectEqual(t, "removals", verbs(p.Removals), "delete "+ref("old").ID())
	})
	t.Run("a step waits for the step before it", func(t *testing.T) {
		c := Component{Name: "c", Items: []Item{item("c", "crd"), item("c", "object")}}
		c.Items[0].Step, c.Items[1].Step = 1, 2
		p := Reconcile(fixture{}.snapshot(c))
		expectEqual(t, "actions", verbs(p.Actions), "create crd")
	})
}

func TestTeardownRemovesInReverseOrder(t *testing.T) {
	at := func(name string, wave int32, kind, group string) appsv1.InventoryEntry {
		r := stacks.Ref{Group: group, Kind: kind, Namespace: "ns", Name: name}
		return appsv1.InventoryEntry{ID: r.ID(), Version: "v1", Wave: wave, State: appsv1.EntryApplied, UID: "uid"}
	}
	entries := []appsv1.InventoryEntry{
		at("first", 0, "ConfigMap", ""),
		at("crd", 1, "CustomResourceDefinition", "apiextensions.k8s.io"),
		at("object", 1, "Thing", "g.io"),
		at("hook", 1, "ValidatingWebhookConfiguration", "admissionregistration.k8s.io"),
		{ID: stacks.Ref{Kind: "Namespace", Name: "shared"}.ID(), Version: "v1", Wave: 9, State: appsv1.EntryShared},
	}
	var order []string
	for len(entries) > 0 {
		in := fixture{entries: entries}.snapshot()
		p := Teardown(in)
		if len(p.Removals) != 1 {
			t.Fatalf("removals %v, want one at a time", verbs(p.Removals))
		}
		gone := p.Removals[0].Entry.ID
		order = append(order, gone)
		var left []appsv1.InventoryEntry
		for _, e := range entries {
			if e.ID != gone {
				left = append(left, e)
			}
		}
		entries = left
	}
	expectEqual(t, "order", order,
		"ns_hook_admissionregistration.k8s.io_ValidatingWebhookConfiguration", "ns_object_g.io_Thing",
		"ns_crd_apiextensions.k8s.io_CustomResourceDefinition", "ns_first__ConfigMap", "_shared__Namespace")
}

// A test comes after its component, and nothing waits for it.
func TestReconcilePlansTests(t *testing.T) {
	test := Component{Name: "web/test", DependsOn: []string{"web"}, Test: true,
		Items: []Item{hookJob("web/test", "job", 0)}}
	web := Component{Name: "web", Items: []Item{item("web", "a")}}
	old := entry("old", appsv1.EntryApplied)
	applied := fixture{entries: []appsv1.InventoryEntry{entryOf("web", "a"), old},
		live: []live.Object{liveObject("a"), liveObject("old")}}
	failing := applied
	failing.entries = append(slices.Clone(applied.entries), hookEntry("web/test", "job", appsv1.EntryApplied))
	failing.live = append(slices.Clone(applied.live), suspendedJob("job", running, func(o *live.Object) {
		o.Readiness, o.Message = live.Failed, "BackoffLimitExceeded"
	}))
	for name, tc := range map[string]struct {
		world   fixture
		actions []string
		removes []string
		state   ComponentState
	}{
		"before its component is applied": {fixture{}, []string{"create a"}, nil, ComponentState{}},
		"when it is ready":                {applied, []string{"create job"}, []string{"delete old"}, ComponentState{}},
		"when it fails":                   {failing, nil, []string{"delete old"}, ComponentState{Unhealthy: true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Reconcile(tc.world.snapshot(web, test))
			if !slices.Equal(actionNames(p.Actions), tc.actions) || !slices.Equal(actionNames(p.Removals), tc.removes) {
				t.Errorf("actions %v, removals %v", actionNames(p.Actions), actionNames(p.Removals))
			}
			if len(p.Components) != 1 || len(p.Tests) != 1 || p.Tests[0].Ready ||
				p.Tests[0].Unhealthy != tc.state.Unhealthy {
				t.Errorf("components %+v, tests %+v", p.Components, p.Tests)
			}
			if len(p.Waits) > 0 {
				t.Errorf("waits %v", actionNames(p.Waits))
			}
		})
	}
}
