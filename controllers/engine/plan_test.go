package engine

import (
	"errors"
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
	return Item{Object: stacks.Object{Ref: r, Version: "v1"}, ID: r.ID(), Want: "want", Component: component}
}

func entry(name string, state appsv1.EntryState) appsv1.InventoryEntry {
	e := appsv1.InventoryEntry{ID: ref(name).ID(), Version: "v1", Component: "c", State: state}
	if state != appsv1.EntryIntended {
		e.UID, e.Hash, e.Baseline = "uid", "want", base
	}
	return e
}

func alive(name string, change ...func(*live.Object)) live.Object {
	o := live.Object{Ref: ref(name), Version: "v1", UID: "uid", Ready: live.Current, Owned: base,
		Mark: live.Mark{Owner: me.String(), ID: ref(name).ID()}}
	for _, f := range change {
		f(&o)
	}
	return o
}

// world is what a plan is made from, by name.
type world struct {
	entries []appsv1.InventoryEntry
	live    []live.Object
	held    map[string]string
	deleted map[string]types.UID
	stale   error
	// succeeded is the uid of a Job that was seen to succeed.
	succeeded types.UID
	policy    func(*Policies)
}

func (w world) input(components ...Component) *Input {
	in := &Input{Owner: me, Components: components, Policies: DefaultPolicies,
		Inventory: NewInventory(&appsv1.Inventory{Entries: w.entries}, nil)}
	if w.policy != nil {
		w.policy(&in.Policies)
	}
	in.Live = func(r stacks.Ref) (live.Object, bool) {
		for _, o := range w.live {
			if o.Ref == r {
				return o, true
			}
		}
		return live.Object{}, false
	}
	in.Succeeded = func(_ stacks.Ref, uid types.UID) bool { return uid != "" && uid == w.succeeded }
	in.Unsynced = func(schema.GroupKind) error { return w.stale }
	in.Held = func(it *Item) string { return w.held[it.Name] }
	in.HeldBack = func(id string) string { return w.held[id] }
	in.Deleted = func(id string) types.UID { return w.deleted[id] }
	return in
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		world  world
		change func(*Item)
		verb   Verb
		reason Reason
		ready  bool
	}{
		"nothing there":        {verb: Create, reason: NewObject},
		"intended, not there":  {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryIntended)}}, verb: Create, reason: NewObject},
		"intended, ours there": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryIntended)}, live: []live.Object{alive("a")}}, verb: Update, reason: Taken},
		"lost inventory":       {world: world{live: []live.Object{alive("a")}}, verb: Update, reason: Taken},
		"as it should be":      {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}, live: []live.Object{alive("a")}}, verb: Skip, reason: Unchanged, ready: true},
		"not ready": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{alive("a", func(o *live.Object) { o.Ready = live.InProgress })}}, verb: Skip, reason: Unchanged},
		"content changed": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}, live: []live.Object{alive("a")}},
			change: func(it *Item) { it.Want = "new" }, verb: Update, reason: Changed},
		"drifted": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{alive("a", func(o *live.Object) { o.Owned = "BBBBBBBBBBBBBBBB" })}}, verb: Update, reason: Drifted},
		"drifted, only warned of": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live:   []live.Object{alive("a", func(o *live.Object) { o.Owned = "BBBBBBBBBBBBBBBB" })},
			policy: func(p *Policies) { p.Drift = appsv1.DriftWarn }}, verb: Skip, reason: Drifted, ready: true},
		"label lost": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{alive("a", func(o *live.Object) { o.LabelLost = true })}}, verb: Update, reason: Drifted},
		"claimed back under Always": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}, live: []live.Object{alive("a", func(o *live.Object) { o.Claimed = true })},
			policy: func(p *Policies) { p.Adopt = appsv1.AdoptAlways }}, verb: Update, reason: Drifted},
		"claimed by somebody as well": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}, live: []live.Object{alive("a", func(o *live.Object) { o.Claimed = true })}},
			verb: Skip, reason: Unchanged, ready: true},
		"deleted by somebody": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}}, verb: Create, reason: Missing},
		"deleted, left so": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			policy: func(p *Policies) { p.Drift = appsv1.DriftIgnore }}, verb: Skip, reason: Missing, ready: true},
		"recreated with our mark": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{alive("a", func(o *live.Object) { o.UID = "another" })}}, verb: Update, reason: Taken},
		"another install's": {world: world{live: []live.Object{alive("a", func(o *live.Object) { o.Mark.Owner = other.String() })}}, verb: Refuse, reason: Owned},
		"being deleted": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)},
			live: []live.Object{alive("a", func(o *live.Object) { o.Deleting = true })}}, verb: Wait, reason: Leaving},
		"we asked to delete it": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}, live: []live.Object{alive("a")},
			deleted: map[string]types.UID{ref("a").ID(): "uid"}}, verb: Wait, reason: Leaving},
		"done and gone": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryDone)}},
			change: func(it *Item) { it.RunsOnce = true }, verb: Skip, reason: Finished, ready: true},
		"a job that finished": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}, live: []live.Object{alive("a")}},
			change: func(it *Item) { it.RunsOnce = true }, verb: Record, reason: Finished, ready: true},
		"a job that finished and is gone": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}, succeeded: "uid"},
			change: func(it *Item) { it.RunsOnce = true }, verb: Record, reason: Finished, ready: true},
		"a job that finished and is to change": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}, succeeded: "uid"},
			change: func(it *Item) { it.RunsOnce, it.Want = true, "another" }, verb: Create, reason: Changed},
		"held":     {world: world{held: map[string]string{"a": "wait"}}, verb: Refuse, reason: Held},
		"unsynced": {world: world{stale: errors.New("x")}, verb: Wait, reason: Unsynced},
		"kind not served yet": {change: func(it *Item) { it.Unserved = &NotServedError{GVK: schema.GroupVersionKind{Group: "g.io", Kind: "K"}} },
			verb: Wait, reason: NotServed},
		"wrong built-in kind": {change: func(it *Item) {
			it.Unserved = &NotServedError{GVK: schema.GroupVersionKind{Group: "apps", Kind: "K"}, BuiltIn: true}
		}, verb: Refuse, reason: Invalid},
		"wrong scope": {change: func(it *Item) { it.Unserved = &WrongScopeError{Ref: it.Ref} }, verb: Refuse, reason: Invalid},
		"moved to another wave": {world: world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied)}, live: []live.Object{alive("a")}},
			change: func(it *Item) { it.Wave = 3 }, verb: Record, reason: Moved, ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			it := item("c", "a")
			if tc.change != nil {
				tc.change(&it)
			}
			a, ready := decide(tc.world.input(), &it)
			if a.Verb != tc.verb || a.Reason != tc.reason || ready != tc.ready {
				t.Errorf("got %s/%s ready=%t, want %s/%s ready=%t (%s)", a.Verb, a.Reason, ready, tc.verb, tc.reason, tc.ready, a.Message)
			}
			if (a.Verb == Wait || a.Verb == Refuse) && a.Message == "" {
				t.Error("what waits says for what")
			}
		})
	}
}

func TestDecideRemoval(t *testing.T) {
	space := stacks.Ref{Kind: "Namespace", Name: "space"}
	shared := appsv1.InventoryEntry{ID: space.ID(), Version: "v1", State: appsv1.EntryShared, Hash: sharedHash}
	for name, tc := range map[string]struct {
		world  world
		entry  appsv1.InventoryEntry
		verb   Verb
		reason Reason
	}{
		"ours":                   {world{live: []live.Object{alive("a")}}, entry("a", appsv1.EntryApplied), Delete, Removed},
		"intended and ours":      {world{live: []live.Object{alive("a")}}, entry("a", appsv1.EntryIntended), Delete, Removed},
		"not known to the index": {world{}, entry("a", appsv1.EntryApplied), Delete, Unsure},
		"adopted":                {world{live: []live.Object{alive("a")}}, entry("a", appsv1.EntryAdopted), Release, Removed},
		"another owner's by now": {world{live: []live.Object{alive("a", func(o *live.Object) { o.Mark.Owner = other.String() })}}, entry("a", appsv1.EntryApplied), Drop, Owned},
		"made again by somebody": {world{live: []live.Object{alive("a", func(o *live.Object) { o.UID = "another" })}}, entry("a", appsv1.EntryApplied), Drop, Owned},
		"on its way":             {world{live: []live.Object{alive("a", func(o *live.Object) { o.Deleting = true })}}, entry("a", appsv1.EntryApplied), Wait, Leaving},
		"asked for already":      {world{live: []live.Object{alive("a")}, deleted: map[string]types.UID{ref("a").ID(): "uid"}}, entry("a", appsv1.EntryApplied), Wait, Leaving},
		"on its way, unheard of": {world{live: []live.Object{alive("a", func(o *live.Object) { o.Deleting, o.LabelLost = true, true })}},
			entry("a", appsv1.EntryApplied), Delete, Unsure},
		"a namespace of several":  {world{}, shared, Delete, Removed},
		"one that is kept":        {world{policy: func(p *Policies) { p.Protect = []string{"Namespace"} }}, shared, Release, Kept},
		"index not synced":        {world{stale: errors.New("x")}, entry("a", appsv1.EntryApplied), Wait, Unsynced},
		"a failed delete is held": {world{held: map[string]string{ref("a").ID(): "no"}}, entry("a", appsv1.EntryApplied), Wait, Held},
	} {
		t.Run(name, func(t *testing.T) {
			what, err := stacks.ParseID(tc.entry.ID)
			if err != nil {
				t.Fatal(err)
			}
			a := decideRemoval(tc.world.input(), tc.entry, what)
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

func same(t *testing.T, what string, got []string, want ...string) {
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

func TestPlanOrder(t *testing.T) {
	one := Component{Name: "one", Items: []Item{item("one", "a")}}
	two := Component{Name: "two", DependsOn: []string{"one"}, Wave: 1, Items: []Item{item("two", "b")}}
	three := Component{Name: "three", Items: []Item{item("three", "c")}}
	applied := func(name, component string) appsv1.InventoryEntry {
		e := entry(name, appsv1.EntryApplied)
		e.Component = component
		return e
	}

	t.Run("a wave starts when the one before is ready, others go on", func(t *testing.T) {
		p := MakePlan(world{}.input(one, two, three))
		same(t, "actions", verbs(p.Actions), "create a", "create c")
		if len(p.Intents) != 3 {
			t.Errorf("all of it is intended at once, got %d intents", len(p.Intents))
		}
		if p.Components[1].Message != "waits for component one" {
			t.Errorf("message %q", p.Components[1].Message)
		}
	})
	t.Run("an object that is not ready holds the next wave", func(t *testing.T) {
		w := world{entries: []appsv1.InventoryEntry{applied("a", "one")},
			live: []live.Object{alive("a", func(o *live.Object) { o.Ready = live.InProgress })}}
		p := MakePlan(w.input(one, two))
		same(t, "actions", verbs(p.Actions))
	})
	t.Run("what was applied before is restored without waiting", func(t *testing.T) {
		b := applied("b", "two")
		b.Wave = 1
		w := world{entries: []appsv1.InventoryEntry{applied("a", "one"), b},
			live: []live.Object{alive("a", func(o *live.Object) { o.Ready = live.InProgress })}}
		two := two
		two.Items = []Item{item("two", "b")}
		two.Items[0].Wave = 1
		p := MakePlan(w.input(one, two))
		same(t, "actions", verbs(p.Actions), "create b")
	})
	t.Run("nothing is pruned before the rest is sent", func(t *testing.T) {
		w := world{entries: []appsv1.InventoryEntry{entry("old", appsv1.EntryApplied)}, live: []live.Object{alive("old")}}
		p := MakePlan(w.input(one))
		if len(p.Removals) != 0 {
			t.Errorf("removals %v", verbs(p.Removals))
		}
		w = world{entries: []appsv1.InventoryEntry{applied("c", "three"), entry("old", appsv1.EntryApplied)},
			live: []live.Object{alive("c"), alive("old")}}
		if p := MakePlan(w.input(one, three)); len(p.Removals) != 0 {
			t.Errorf("removals %v before an object of an earlier component is sent", verbs(p.Removals))
		}
		w = world{entries: []appsv1.InventoryEntry{applied("a", "one"), entry("old", appsv1.EntryApplied)},
			live: []live.Object{alive("a"), alive("old")}}
		p = MakePlan(w.input(one))
		same(t, "removals", verbs(p.Removals), "delete "+ref("old").ID())
	})
	t.Run("a step gates inside a component", func(t *testing.T) {
		c := Component{Name: "c", Items: []Item{item("c", "crd"), item("c", "object")}}
		c.Items[0].Step, c.Items[1].Step = stepCRDs, stepPreHooks
		p := MakePlan(world{}.input(c))
		same(t, "actions", verbs(p.Actions), "create crd")
	})
}

func TestPlanTeardownGoesBackwards(t *testing.T) {
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
		in := world{entries: entries}.input()
		p := PlanTeardown(in)
		if len(p.Removals) != 1 {
			t.Fatalf("one at a time here, got %v", verbs(p.Removals))
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
	same(t, "order", order,
		"ns_hook_admissionregistration.k8s.io_ValidatingWebhookConfiguration", "ns_object_g.io_Thing",
		"ns_crd_apiextensions.k8s.io_CustomResourceDefinition", "ns_first__ConfigMap", "_shared__Namespace")
}
