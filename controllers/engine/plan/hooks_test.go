package plan

import (
	"slices"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// hookItem returns a Job that is a hook of a phase.
func hookItem(name string, phase stacks.HookPhase, step int, policies ...string) Item {
	it := jobItem("c", name)
	it.PreRemove, it.RunsOnce, it.Step = 0, true, step
	it.Hook = &stacks.Hook{Phase: phase, DeletePolicies: policies}
	it.ContentHash = "run of " + name
	return it
}

// An account of two phases is there while their Jobs run, and not between them.
func TestHookOfTwoPhases(t *testing.T) {
	account := item("c", "account")
	account.RunsOnce, account.Hook = true, &stacks.Hook{Phase: stacks.HookPre, AlsoPost: true,
		DeletePolicies: []string{hookSucceededPolicy}}
	account.ContentHash, account.Step, account.PostHash, account.PostStep = "pre", 1, "post", 3
	pre, post := hookItem("before", stacks.HookPre, 1), hookItem("after", stacks.HookPost, 3)
	main := item("c", "main")
	main.Step = 2
	c := Component{Name: "c", Items: []Item{account, pre, main, post}}
	accountAt := func(state appsv1.EntryState, hash string) appsv1.InventoryEntry {
		e := entry("account", state)
		e.Hash = hash
		return e
	}
	jobAt := func(it Item, state appsv1.EntryState) appsv1.InventoryEntry {
		e := preRemoveEntry("c", it.Name, 0, 0)
		e.State, e.Hash = state, it.ContentHash
		return e
	}
	isReady := entry("main", appsv1.EntryApplied)
	running := func(o *live.Object) { o.Readiness = live.InProgress }
	binding := account
	binding.Object, binding.ID = item("c", "binding").Object, item("c", "binding").ID
	binding.Hook = account.Hook
	names := []string{}
	for _, it := range (&Component{Items: []Item{account, binding, pre, main, post}}).visits() {
		names = append(names, it.Name)
	}
	if want := []string{"account", "binding", "before", "main", "account", "binding", "after"}; !slices.Equal(names,
		want) {
		t.Errorf("visits %v, want %v", names, want)
	}
	for name, tc := range map[string]struct {
		entries []appsv1.InventoryEntry
		live    []live.Object
		want    []string
	}{
		"first": {nil, nil, []string{"create account", "create before"}},
		"before the other objects": {
			[]appsv1.InventoryEntry{accountAt(appsv1.EntryDone, "pre"), jobAt(pre, appsv1.EntryApplied)},
			[]live.Object{liveObject("account"), suspendedJob("before", running)}, nil},
		"the first phase is over": {
			[]appsv1.InventoryEntry{accountAt(appsv1.EntryDone, "pre"), jobAt(pre, appsv1.EntryDone)},
			[]live.Object{liveObject("account"), suspendedJob("before", complete)},
			[]string{"create main", "delete account"}},
		"the second phase": {
			[]appsv1.InventoryEntry{accountAt(appsv1.EntryDone, "pre"), jobAt(pre, appsv1.EntryDone), isReady},
			[]live.Object{suspendedJob("before", complete), liveObject("main")},
			[]string{"create account", "create after"}},
		"the second phase, and the account is still there": {
			[]appsv1.InventoryEntry{accountAt(appsv1.EntryDone, "pre"), jobAt(pre, appsv1.EntryDone), isReady},
			[]live.Object{liveObject("account"), suspendedJob("before", complete), liveObject("main")},
			[]string{"update account", "create after"}},
		"a Job of the second phase failed": {
			[]appsv1.InventoryEntry{accountAt(appsv1.EntryDone, "post"), jobAt(pre, appsv1.EntryDone), isReady,
				jobAt(post, appsv1.EntryApplied)},
			[]live.Object{liveObject("account"), suspendedJob("before", complete), liveObject("main"),
				suspendedJob("after", func(o *live.Object) { o.Finished, o.Readiness = true, live.Failed })}, nil},
		"all is over": {
			[]appsv1.InventoryEntry{accountAt(appsv1.EntryDone, "post"), jobAt(pre, appsv1.EntryDone), isReady,
				jobAt(post, appsv1.EntryDone)},
			[]live.Object{liveObject("account"), suspendedJob("before", complete), liveObject("main"),
				suspendedJob("after", complete)},
			[]string{"delete account"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Reconcile(fixture{entries: tc.entries, live: tc.live}.snapshot(c))
			if got := actionNames(p.Actions); !slices.Equal(got, tc.want) {
				t.Errorf("actions %v, want %v", got, tc.want)
			}
			if got := p.Components[0]; got.Objects != 4 || got.Released != (name == "all is over") {
				t.Errorf("%d objects, released: %t", got.Objects, got.Released)
			}
		})
	}
}

// A hook that is not a Job is applied in its step, also after the Jobs of its phase.
func TestHooksAfterTheJobsOfTheirPhase(t *testing.T) {
	for name, policies := range map[string][]string{"kept": nil, "deleted": {hookSucceededPolicy}} {
		t.Run(name, func(t *testing.T) {
			job, config := hookItem("job", stacks.HookPre, 0), item("c", "config")
			config.RunsOnce, config.Step = true, 1
			config.Hook = &stacks.Hook{Phase: stacks.HookPre, Weight: 5, DeletePolicies: policies}
			main := item("c", "main")
			main.Step = 2
			e := preRemoveEntry("c", "job", 0, 0)
			e.State, e.Hash = appsv1.EntryDone, job.ContentHash
			in := fixture{entries: []appsv1.InventoryEntry{e}, live: []live.Object{suspendedJob("job", complete)}}.
				snapshot(Component{Name: "c", Items: []Item{job, config, main}})
			p := Reconcile(in)
			if got := actionNames(p.Actions); !slices.Equal(got, []string{"create config"}) ||
				p.Components[0].Released {
				t.Errorf("actions %v, released: %t", got, p.Components[0].Released)
			}
		})
	}
}

// A Job that a crash left without a record of its creation is that of the run if the intent to
// create it was recorded.
func TestRunsOfHooks(t *testing.T) {
	it := hookItem("job", stacks.HookPre, 0)
	at := func(state appsv1.EntryState, hash string) []appsv1.InventoryEntry {
		e := preRemoveEntry("c", "job", 0, 0)
		e.State, e.Hash = state, hash
		if state == appsv1.EntryIntended {
			e.UID = ""
		}
		return []appsv1.InventoryEntry{e}
	}
	there := []live.Object{suspendedJob("job", complete)}
	for name, tc := range map[string]struct {
		entries []appsv1.InventoryEntry
		live    []live.Object
		settled bool
		verb    Verb
		reason  Reason
		intents int
	}{
		"first":    {nil, nil, false, VerbCreate, ReasonNew, 2},
		"intended": {at(appsv1.EntryIntended, "run of job"), nil, false, VerbCreate, ReasonNew, 0},
		"created before a crash": {at(appsv1.EntryIntended, "run of job"), there, false, VerbRecord,
			ReasonReclaimed, 0},
		"created for an earlier run": {at(appsv1.EntryIntended, "earlier"), there, false, VerbUpdate, ReasonRunsAgain,
			0},
		"without a record": {nil, there, false, VerbUpdate, ReasonRunsAgain, 1},
		"an earlier run, running": {at(appsv1.EntryApplied, "earlier"), []live.Object{suspendedJob("job")}, false,
			VerbUpdate, ReasonRunsAgain, 0},
		"an earlier run, deleted":      {at(appsv1.EntryDone, "earlier"), nil, false, VerbCreate, ReasonChanged, 1},
		"its release is complete":      {at(appsv1.EntryDone, "earlier"), nil, true, "", "", 0},
		"complete, without its record": {nil, there, true, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			it := it
			it.Settled = tc.settled
			p := Reconcile(fixture{entries: tc.entries, live: tc.live}.snapshot(Component{Name: "c",
				Items: []Item{it}}))
			var got Action
			if len(p.Actions) == 1 {
				got = p.Actions[0]
			}
			if got.Verb != tc.verb || got.Reason != tc.reason || len(p.Intents) != tc.intents || len(p.Actions) > 1 {
				t.Errorf("got %v %s, %d intents", got.Verb, got.Reason, len(p.Intents))
			}
		})
	}
}

func TestHooksAreDeletedAfterTheirTimeToLive(t *testing.T) {
	ttl := int64(60)
	it := hookItem("job", stacks.HookPre, 0)
	it.Hook.TTLSeconds = &ttl
	e := preRemoveEntry("c", "job", 0, 0)
	e.State, e.Hash = appsv1.EntryDone, it.ContentHash
	for since, want := range map[time.Duration]time.Duration{0: time.Minute, 45 * time.Second: 15 * time.Second,
		time.Minute: 0} {
		in := fixture{entries: []appsv1.InventoryEntry{e}, live: []live.Object{suspendedJob("job", complete)}}.
			snapshot(Component{Name: "c", Items: []Item{it}})
		in.DoneFor = map[string]time.Duration{it.ID: since}
		p := Reconcile(in)
		if p.DeleteAfter != want || len(p.Actions) == 1 != (want == 0) {
			t.Errorf("after %s: %v, deleted in %s", since, actionNames(p.Actions), p.DeleteAfter)
		}
	}
}
