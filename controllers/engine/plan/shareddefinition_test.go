package plan

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

var widgets = stacks.Ref{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com"}

func served(change func(*stacks.ServedKind), versions ...string) *stacks.ServedKind {
	k := &stacks.ServedKind{Scope: "Namespaced", Plural: "widgets", Singular: "widget", Kind: "Widget",
		ListKind: "WidgetList", ShortNames: []string{"wd"}, Versions: versions}
	if change != nil {
		change(k)
	}
	return k
}

func definitionItem(versions ...string) Item {
	return Item{Object: stacks.Object{Ref: widgets, Version: "v1", Serves: served(nil, versions...)}, ID: widgets.ID(),
		ContentHash: "want", Component: "c"}
}

func liveDefinition(owner OwnerKey, serves *stacks.ServedKind, change ...func(*live.Object)) live.Object {
	o := live.Object{Ref: widgets, Version: "v1", UID: "uid", Readiness: live.Current, OwnedHash: base,
		Mark: live.Mark{Owner: owner.String(), ID: widgets.ID()}, Serves: serves}
	for _, f := range change {
		f(&o)
	}
	return o
}

func TestDefinitionOfAnotherOwnerIsSharedIfItServesWhatIsDesired(t *testing.T) {
	applied := appsv1.InventoryEntry{ID: widgets.ID(), Version: "v1", UID: "uid", Component: "c", Hash: "want",
		Baseline: base, State: appsv1.EntryApplied}
	intended := appsv1.InventoryEntry{ID: widgets.ID(), Version: "v1", Component: "c", State: appsv1.EntryIntended}
	elsewhere, installation := other, other
	elsewhere.Namespace, installation.Installation = "elsewhere", "another"
	for name, tc := range map[string]struct {
		live    live.Object
		entries []appsv1.InventoryEntry
		verb    Verb
		reason  Reason
		ready   bool
		// says is in the message, and drops is true if the entry leaves the inventory.
		says  []string
		drops bool
	}{
		"the same": {live: liveDefinition(other, served(nil, "v1")), verb: VerbSkip, reason: ReasonShared, ready: true},
		"of another namespace, with more versions": {live: liveDefinition(elsewhere, served(nil, "v1", "v2")),
			verb: VerbSkip, reason: ReasonShared, ready: true},
		"not ready": {live: liveDefinition(other, served(nil, "v1"), func(o *live.Object) {
			o.Readiness, o.Message = live.InProgress, "names not accepted"
		}), verb: VerbSkip, reason: ReasonShared, says: []string{widgets.String(), "names not accepted"}},
		"drifted": {live: liveDefinition(other, served(nil, "v1"), func(o *live.Object) {
			o.OwnedHash = "BBBBBBBBBBBBBBBB"
		}), verb: VerbSkip, reason: ReasonShared, ready: true},
		"recorded before its create": {live: liveDefinition(other, served(nil, "v1")),
			entries: []appsv1.InventoryEntry{intended}, verb: VerbSkip, reason: ReasonShared, ready: true, drops: true},
		"handed over before the entry was dropped": {live: liveDefinition(other, served(nil, "v1")),
			entries: []appsv1.InventoryEntry{applied}, verb: VerbSkip, reason: ReasonShared, ready: true, drops: true},
		"being deleted": {live: liveDefinition(other, served(nil, "v1"), func(o *live.Object) { o.Deleting = true }),
			verb: VerbWait, reason: ReasonBeingDeleted, says: []string{"is being deleted"}},
		"without a version": {live: liveDefinition(other, served(nil, "v2")), verb: VerbRefuse,
			reason: ReasonOwnedByOther,
			says:   []string{other.DisplayName(), me.DisplayName(), "version v1 (it serves v2)"}},
		"in another scope": {live: liveDefinition(other, served(func(k *stacks.ServedKind) {
			k.Scope = "Cluster"
		}, "v1")), verb: VerbRefuse, reason: ReasonOwnedByOther, says: []string{`scope "Namespaced" (it has "Cluster")`}},
		"with another name": {live: liveDefinition(other, served(func(k *stacks.ServedKind) {
			k.Kind = "Gadget"
		}, "v1")), verb: VerbRefuse, reason: ReasonOwnedByOther, says: []string{`kind "Widget" (it has "Gadget")`}},
		"without a short name": {live: liveDefinition(other, served(func(k *stacks.ServedKind) {
			k.ShortNames = nil
		}, "v1")), verb: VerbRefuse, reason: ReasonOwnedByOther, says: []string{`short name "wd"`}},
		"of another installation": {live: liveDefinition(installation, served(nil, "v1")), verb: VerbRefuse,
			reason: ReasonOwnedByOther, says: []string{"remove the object from one of the two"}},
		"ours": {live: liveDefinition(me, served(nil, "v1")), entries: []appsv1.InventoryEntry{applied}, verb: VerbSkip,
			reason: ReasonUnchanged, ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			it := definitionItem("v1")
			in := fixture{entries: tc.entries, live: []live.Object{tc.live}}.snapshot(
				Component{Name: "c", Items: []Item{it}})
			a, ready := decideItem(in, &it)
			if a.Verb != tc.verb || a.Reason != tc.reason || ready != tc.ready {
				t.Errorf("got %s/%s ready=%t, want %s/%s ready=%t (%s)", a.Verb, a.Reason, ready, tc.verb, tc.reason,
					tc.ready, a.Message)
			}
			for _, s := range tc.says {
				if !strings.Contains(a.Message, s) {
					t.Errorf("message %q, want %q in it", a.Message, s)
				}
			}
			p := Reconcile(in)
			if tc.live.Mark.Owner != installation.String() && len(p.Intents)+len(p.Actions) > 0 {
				t.Errorf("planned %v and %v, want no write and no entry", p.Intents, p.Actions)
			}
			if drops := len(p.Removals) == 1 && p.Removals[0].Verb == VerbDrop; drops != tc.drops {
				t.Errorf("removals %+v, want the entry dropped: %t", p.Removals, tc.drops)
			}
			if shared := len(p.Shared) == 1; shared != (tc.reason == ReasonShared) {
				t.Errorf("shared %+v", p.Shared)
			}
		})
	}
}

// After a start, the index does not know yet if another owner has a definition.
func TestDefinitionHasNoEntryBeforeItsOwnerIsKnown(t *testing.T) {
	it := definitionItem("v1")
	in := fixture{}.snapshot(Component{Name: "c", Items: []Item{it, item("c", "a")}})
	in.SyncErrors = map[schema.GroupKind]error{widgets.GroupKind(): errors.New("not listed")}
	p := Reconcile(in)
	if len(p.Intents) != 1 || p.Intents[0].ID == widgets.ID() || len(p.Waits) != 1 ||
		p.Waits[0].Reason != ReasonIndexNotSynced {
		t.Errorf("intents %+v, waits %+v; want a wait, and no entry of the definition", p.Intents, p.Waits)
	}
}

func TestDeletedDefinitionIsCreatedAgainByItsOwner(t *testing.T) {
	it := definitionItem("v1")
	in := fixture{}.snapshot(Component{Name: "c", Items: []Item{it}})
	in.FormerOwners = map[string]string{widgets.ID(): other.DisplayName()}
	p := Reconcile(in)
	if len(p.Intents)+len(p.Actions) > 0 || len(p.Waits) != 1 || p.Waits[0].Reason != ReasonAwaitsFormerOwner ||
		!strings.Contains(p.Waits[0].Message, other.DisplayName()) {
		t.Errorf("got %+v, want a wait for the owner", p)
	}
	in.FormerOwners = nil
	if p = Reconcile(in); len(p.Intents) != 1 || len(p.Actions) != 1 || p.Actions[0].Verb != VerbCreate {
		t.Errorf("got %+v, want a create after the grace", p)
	}
}

// A CustomResourceDefinition that another owner uses and cannot receive stays, and everything else
// is removed nevertheless.
func TestUsedDefinitionStaysAloneWithItsOwner(t *testing.T) {
	applied := appsv1.InventoryEntry{ID: widgets.ID(), Version: "v1", UID: "uid", Component: "crds", Hash: "want",
		State: appsv1.EntryApplied}
	stays := entry("a", appsv1.EntryApplied)
	stays.Wave = 1
	w := fixture{entries: []appsv1.InventoryEntry{applied, stays},
		live: []live.Object{liveDefinition(me, served(nil, "v1")), liveObject("a")},
		policy: func(p *Policies) {
			p.HandoverTo = func(id string) HandoverDecision {
				if id == widgets.ID() {
					return HandoverDecision{Keep: "another install uses it", On: &other}
				}
				return HandoverDecision{}
			}
			p.RemovalRequest = func(*appsv1.InventoryEntry) *RemovalRequest {
				return &RemovalRequest{KeepReason: func(stacks.Ref) string { return "" }}
			}
		}}
	for name, makePlan := range map[string]func(*Snapshot) Plan{"deletion": Teardown, "request": Removal} {
		p := makePlan(w.snapshot())
		if len(p.Removals) != 1 || p.Removals[0].Entry.ID != stays.ID || p.Removals[0].Verb != VerbDelete {
			t.Errorf("%s: removals %+v, want the other object", name, p.Removals)
		}
		if len(p.Waits) != 1 || p.Waits[0].Entry.ID != widgets.ID() || !p.Waits[0].AwaitsOwner() ||
			p.Waits[0].Message != "another install uses it" {
			t.Errorf("%s: waits %+v, want the definition with the reason", name, p.Waits)
		}
	}
	w.policy = func(p *Policies) {
		p.HandoverTo = func(string) HandoverDecision {
			return HandoverDecision{Keep: "another install uses it", On: &other}
		}
	}
	w.entries = w.entries[:1]
	p := Reconcile(w.snapshot(Component{Name: "c"}))
	if len(p.Removals)+len(p.Waits) > 0 || len(p.Left) != 1 || p.Left[0].Message == "" || !p.Ready() {
		t.Errorf("pruning: %+v, want the definition left, and the owner ready", p)
	}
	keep := w.policy
	w.policy = func(p *Policies) { keep(p); p.Orphan = true }
	if p = Teardown(w.snapshot()); len(p.Removals) != 1 || p.Removals[0].Verb != VerbRelease || len(p.Waits) > 0 {
		t.Errorf("with deletionPolicy Orphan: %+v, want a release", p)
	}
}
