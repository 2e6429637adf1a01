package plan

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// hookJob returns the item of a Job that is a hook, in a step.
func hookJob(component, name string, step int) Item {
	it := jobItem(component, name)
	it.PreRemove, it.Step, it.RunsOnce = 0, step, true
	it.Hook = &stacks.Hook{Phase: stacks.HookPre, DeletePolicies: []string{hookSucceededPolicy}}
	return it
}

func hookEntry(component, name string, state appsv1.EntryState) appsv1.InventoryEntry {
	e := preRemoveEntry(component, name, 0, 0)
	e.State = state
	return e
}

func entryOf(component, name string) appsv1.InventoryEntry {
	e := entry(name, appsv1.EntryApplied)
	e.Component = component
	return e
}

// shopHooks are the hooks of component "shop": first and second before its removal, last after it.
func shopHooks() []RemovalHooks {
	return []RemovalHooks{{Secret: ref("secret").ID(),
		Pre:  Component{Name: "shop", Items: []Item{hookJob("shop", "first", 0), hookJob("shop", "second", 1)}},
		Post: Component{Name: "shop", Items: []Item{hookJob("shop", "last", 0)}}}}
}

func TestTeardownRunsRemovalHooks(t *testing.T) {
	web, secret := entryOf("shop", "web"), entryOf("shop", "secret")
	marked := secret
	marked.PreRemove = preHooksDone
	namespace := appsv1.InventoryEntry{ID: stacks.Ref{Kind: "Namespace", Name: "ns"}.ID(), Version: "v1",
		Component: "shop",
		State:     appsv1.EntryShared, Hash: "shared"}
	done := func(name string) appsv1.InventoryEntry { return hookEntry("shop", name, appsv1.EntryDone) }
	applied := func(name string) appsv1.InventoryEntry { return hookEntry("shop", name, appsv1.EntryApplied) }
	failed := func(o *live.Object) { o.Readiness, o.Message = live.Failed, "BackoffLimitExceeded" }
	all := []live.Object{liveObject("web"), liveObject("secret")}
	for name, tc := range map[string]struct {
		entries []appsv1.InventoryEntry
		live    []live.Object
		policy  func(*Policies)
		removes []string
		says    string
	}{
		"the first hook is created": {[]appsv1.InventoryEntry{web, secret}, all, nil, []string{"create first"}, ""},
		"nothing happens while it runs": {[]appsv1.InventoryEntry{web, secret, applied("first")},
			append(slices.Clone(all), suspendedJob("first", running)), nil, nil,
			`hooks of component "shop" run before the removal: Job ns/first is`},
		"its success is recorded": {[]appsv1.InventoryEntry{web, secret, applied("first")},
			append(slices.Clone(all), suspendedJob("first", complete)), nil, []string{"create second", "record first"},
			""},
		"its failure is named": {[]appsv1.InventoryEntry{web, secret, applied("first")},
			append(slices.Clone(all), suspendedJob("first", running, failed)), nil, nil,
			`a hook of component "shop" that runs before the removal has failed: Job ns/first is Failed: BackoffLimitExceeded`},
		"a failed one that was deleted runs again": {[]appsv1.InventoryEntry{web, secret, applied("first")}, all, nil,
			[]string{"create first"}, ""},
		"one that was deleted runs again, whatever spec.drift says": {[]appsv1.InventoryEntry{web, secret,
			applied("first")},
			all, func(p *Policies) { p.Drift = appsv1.DriftIgnore }, []string{"create first"}, ""},
		"those before do not run again": {[]appsv1.InventoryEntry{web, marked}, all, nil, []string{"delete web"}, ""},
		"both are deleted": {[]appsv1.InventoryEntry{web, secret, done("first"), done("second")},
			append(slices.Clone(all), suspendedJob("first", complete), suspendedJob("second", complete)), nil,
			[]string{"delete first", "delete second"}, ""},
		"then everything else is removed": {[]appsv1.InventoryEntry{web, secret, namespace, done("first"),
			done("second")},
			all, nil, []string{"delete web"}, ""},
		"then the last hook runs": {[]appsv1.InventoryEntry{secret, namespace, done("first"), done("second")}, all[1:],
			nil,
			[]string{"create last"}, ""},
		"its failure blocks the removal": {[]appsv1.InventoryEntry{secret, done("first"), done("second"),
			applied("last")},
			append(slices.Clone(all[1:]), suspendedJob("last", running, failed)), nil, nil,
			`that runs after the removal has failed: Job ns/last is Failed`},
		"then the Secret goes first": {[]appsv1.InventoryEntry{secret, namespace, done("first"), done("second"),
			done("last")},
			all[1:], nil, []string{"delete secret"}, ""},
		"and what is left": {[]appsv1.InventoryEntry{namespace, done("first"), done("second"), done("last")}, nil, nil,
			[]string{"delete first", "delete last", "delete second"}, ""},
		"none runs without the Secret": {[]appsv1.InventoryEntry{web}, all[:1], nil, []string{"delete web"}, ""},
		"none runs with Orphan": {[]appsv1.InventoryEntry{web, secret}, all, func(p *Policies) { p.Orphan = true },
			[]string{"release secret", "release web"}, ""},
		"none runs in a namespace that is deleted": {[]appsv1.InventoryEntry{secret}, nil,
			func(p *Policies) { p.TerminatingNamespace = "ns" }, []string{"drop secret"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := fixture{entries: tc.entries, live: tc.live, policy: tc.policy}.snapshot()
			in.RemovalHooks = shopHooks()
			p := Teardown(in)
			removes := actionNames(p.Removals)
			slices.Sort(removes)
			if !slices.Equal(removes, tc.removes) {
				t.Errorf("got %v, want %v", removes, tc.removes)
			}
			if tc.says == "" {
				return
			}
			if len(p.Waits) == 0 || !strings.Contains(p.Waits[0].Message, tc.says) {
				t.Fatalf("waits %+v, want %q", p.Waits, tc.says)
			}
			if isFailure := errors.As(p.Waits[0].Err, new(*RemovalHookError)); isFailure != strings.Contains(tc.says,
				"failed") {
				t.Errorf("%v", p.Waits[0].Err)
			}
		})
	}
}

// The hooks of a component run when the whole component leaves the stack, and not when it only
// changes.
func TestRemovalHooksRunWhenComponentIsRemoved(t *testing.T) {
	other, web, secret := entryOf("other", "other"), entryOf("shop", "web"), entryOf("shop", "secret")
	w := fixture{entries: []appsv1.InventoryEntry{other, web, secret},
		live: []live.Object{liveObject("other"), liveObject("web"), liveObject("secret")}}
	stays := Component{Name: "other", Items: []Item{item("other", "other")}}
	for name, tc := range map[string]struct {
		components []Component
		removes    []string
	}{
		"it leaves": {[]Component{stays}, []string{"create first"}},
		"it loses an object": {[]Component{stays, {Name: "shop", Items: []Item{item("shop", "secret")}}},
			[]string{"delete web"}},
		"it needs no Secret anymore": {[]Component{stays, {Name: "shop", Items: []Item{item("shop", "web")}}},
			[]string{"delete secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := w.snapshot(tc.components...)
			in.RemovalHooks = shopHooks()
			if got := actionNames(Reconcile(in).Removals); !slices.Equal(got, tc.removes) {
				t.Errorf("got %v, want %v", got, tc.removes)
			}
		})
	}
}

// The entries of hooks are added during a removal: they do not count for the delete limits.
func TestRemovalHooksNeedNoApproval(t *testing.T) {
	secret := entryOf("shop", "secret")
	secret.Leaving = true // approved
	in := fixture{entries: []appsv1.InventoryEntry{entryOf("other", "other"), secret,
		hookEntry("shop", "first", appsv1.EntryDone), hookEntry("shop", "second", appsv1.EntryDone)},
		live:   []live.Object{liveObject("other"), liveObject("secret")},
		policy: func(p *Policies) { p.MaxDeletes = 1 }}.
		snapshot(Component{Name: "other", Items: []Item{item("other", "other")}})
	in.RemovalHooks = shopHooks()
	if p := Reconcile(in); !slices.Equal(actionNames(p.Removals), []string{"create last"}) {
		t.Errorf("removals %v, waits %v", actionNames(p.Removals), p.Waits)
	}
}

// A component that moves to another owner is not removed: its hooks do not run, also if some of its
// objects do not move, or if the controller is killed in between.
func TestRemovalHooksDoNotRunForMovedComponents(t *testing.T) {
	web, rest, secret := entryOf("shop", "web"), entryOf("shop", "rest"), entryOf("shop", "secret")
	w := fixture{entries: []appsv1.InventoryEntry{web, rest, secret},
		live: []live.Object{liveObject("web"), liveObject("rest"), liveObject("secret")},
		policy: func(p *Policies) {
			p.HandoverTo = func(id string) HandoverDecision {
				if id == web.ID {
					return HandoverDecision{To: &other}
				}
				return HandoverDecision{}
			}
		}}
	in := w.snapshot()
	in.RemovalHooks = shopHooks()
	p := Teardown(in)
	if !slices.Equal(actionNames(p.Removals), []string{"hand over web"}) || len(p.Intents) != 1 {
		t.Fatalf("removals %v, intents %+v", actionNames(p.Removals), p.Intents)
	}
	in.Inventory.Put(p.Intents[0])
	in.Inventory.Remove(web.ID)
	if p = Teardown(in); !slices.Equal(actionNames(p.Removals), []string{"delete rest", "delete secret"}) {
		t.Errorf("removals %v", actionNames(p.Removals))
	}
}

// A component is removed as a whole: what may be removed now stays until the rest may be, too.
func TestComponentWithHooksIsRemovedAsAWhole(t *testing.T) {
	web, rest, secret := entryOf("shop", "web"), entryOf("shop", "rest"), entryOf("shop", "secret")
	w := fixture{entries: []appsv1.InventoryEntry{entryOf("other", "other"), web, rest, secret,
		hookEntry("shop", "first", appsv1.EntryDone)},
		live: []live.Object{liveObject("other"), liveObject("web"), liveObject("rest"), liveObject("secret")}}
	for name, change := range map[string]func(*Policies){
		"an object may be claimed": func(p *Policies) {
			p.HandoverTo = func(id string) HandoverDecision {
				if id == rest.ID {
					return HandoverDecision{On: &other, Leave: "may be claimed"}
				}
				return HandoverDecision{}
			}
		},
		"an approval is missing": func(p *Policies) { p.MaxDeletes = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			w.policy = change
			in := w.snapshot(Component{Name: "other", Items: []Item{item("other", "other")}})
			in.RemovalHooks = shopHooks()
			p := Reconcile(in)
			if len(p.Removals) > 0 || len(p.Actions) > 0 {
				t.Errorf("removals %v", actionNames(p.Removals))
			}
			if !slices.ContainsFunc(p.Left, func(a Action) bool {
				return strings.Contains(a.Message, `component "shop" stays until all of its objects may be removed`)
			}) {
				t.Errorf("left %+v", p.Left)
			}
		})
	}
}

// A component that gets another name is not removed.
func TestRemovalHooksDoNotRunForRenamedComponents(t *testing.T) {
	web, secret := entryOf("shop", "web"), entryOf("shop", "secret")
	in := fixture{entries: []appsv1.InventoryEntry{web, secret},
		live: []live.Object{liveObject("web"), liveObject("secret")}}.
		snapshot(Component{Name: "store", Items: []Item{item("store", "web")}})
	in.RemovalHooks = shopHooks()
	for _, e := range Reconcile(in).Intents {
		in.Inventory.Put(e)
	}
	web.Component = "store"
	in.Inventory.Put(web)
	if got := actionNames(Reconcile(in).Removals); !slices.Equal(got, []string{"delete secret"}) {
		t.Errorf("got %v", got)
	}
}

// Released objects of a component do not wait for its hooks.
func TestReleasedObjectsDoNotWaitForHooks(t *testing.T) {
	web, own, secret := entryOf("shop", "web"), entryOf("shop", "own"), entryOf("shop", "secret")
	in := fixture{entries: []appsv1.InventoryEntry{web, own, secret},
		live:   []live.Object{liveObject("web"), liveObject("own"), liveObject("secret")},
		policy: func(p *Policies) { p.Released = map[string]string{own.ID: "it is this install"} }}.snapshot()
	in.RemovalHooks = shopHooks()
	got := actionNames(Reconcile(in).Removals)
	slices.Sort(got)
	if !slices.Equal(got, []string{"create first", "release own"}) {
		t.Errorf("got %v", got)
	}
}
