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

func jobRef(name string) stacks.Ref {
	return stacks.Ref{Group: "batch", Kind: "Job", Namespace: "ns", Name: name}
}

// preRemoveEntry returns the entry of a Job that runs before a removal.
func preRemoveEntry(component, name string, wave, place int32) appsv1.InventoryEntry {
	return appsv1.InventoryEntry{ID: jobRef(name).ID(), Version: "v1", Component: component, Wave: wave,
		PreRemove: place,
		UID:       "uid", Hash: "want", Baseline: base, State: appsv1.EntryApplied}
}

func suspendedJob(name string, change ...func(*live.Object)) live.Object {
	o := live.Object{Ref: jobRef(name), Version: "v1", UID: "uid", Readiness: live.InProgress, Suspended: true,
		OwnedHash: base,
		Mark:      live.Mark{Owner: me.String(), ID: jobRef(name).ID()}}
	for _, f := range change {
		f(&o)
	}
	return o
}

func running(o *live.Object) { o.Suspended = false }

func complete(o *live.Object) {
	o.Suspended, o.Finished, o.Succeeded, o.Readiness = false, true, true, live.Current
}

// actionNames returns the verb and the object name of each action.
func actionNames(actions []Action) (out []string) {
	for i := range actions {
		out = append(out, string(actions[i].Verb)+" "+actions[i].Ref().Name)
	}
	return out
}

func TestTeardownRunsPreRemoveJobs(t *testing.T) {
	db, job := entry("db", appsv1.EntryApplied), preRemoveEntry("drain", "job", 1, 1)
	done := job
	done.State = appsv1.EntryDone
	for name, tc := range map[string]struct {
		entries []appsv1.InventoryEntry
		live    []live.Object
		policy  func(*Policies)
		removes []string
		waits   []string
		says    string
	}{
		"it runs first": {[]appsv1.InventoryEntry{db, job},
			[]live.Object{liveObject("db"), suspendedJob("job")}, nil, []string{"run job"}, nil, ""},
		"it is running": {[]appsv1.InventoryEntry{db, job},
			[]live.Object{liveObject("db"), suspendedJob("job", running)}, nil, nil, []string{"wait job"},
			"Job ns/job runs before anything is removed, and is not done"},
		"it succeeded": {[]appsv1.InventoryEntry{db, job},
			[]live.Object{liveObject("db"), suspendedJob("job", complete)}, nil, []string{"record job"}, nil, ""},
		"success is recorded": {[]appsv1.InventoryEntry{db, done},
			[]live.Object{liveObject("db"), suspendedJob("job", complete)}, nil, []string{"delete job"}, nil, ""},
		"recorded, and gone": {[]appsv1.InventoryEntry{db, done}, []live.Object{liveObject("db")}, nil,
			[]string{"delete job"}, nil, ""},
		"it is not in the index": {[]appsv1.InventoryEntry{db, job}, []live.Object{liveObject("db")}, nil,
			[]string{"run job"}, nil, ""},
		"it is being deleted": {[]appsv1.InventoryEntry{db, job},
			[]live.Object{liveObject("db"), suspendedJob("job", func(o *live.Object) { o.Deleting = true })}, nil, nil,
			[]string{"wait job"}, "is being deleted"},
		"it failed": {[]appsv1.InventoryEntry{db, job},
			[]live.Object{liveObject("db"), suspendedJob("job", running, func(o *live.Object) {
				o.Readiness, o.Message = live.Failed, "BackoffLimitExceeded"
			})}, nil, nil, []string{"wait job"}, "has failed (BackoffLimitExceeded)"},
		"it is protected": {[]appsv1.InventoryEntry{db, job},
			[]live.Object{liveObject("db"), suspendedJob("job", func(o *live.Object) { o.Protected = true })}, nil, nil,
			[]string{"wait job"}, live.PreventDeletionAnnotation},
		"it was recreated": {[]appsv1.InventoryEntry{db, job},
			[]live.Object{liveObject("db"), suspendedJob("job", func(o *live.Object) { o.UID = "another" })}, nil,
			[]string{"record job"}, nil, ""},
		"another install owns it": {[]appsv1.InventoryEntry{db, job},
			[]live.Object{liveObject("db"), suspendedJob("job", func(o *live.Object) {
				o.Mark.Owner = other.String()
			})}, nil, []string{"record job"}, nil, ""},
		"with Orphan": {[]appsv1.InventoryEntry{db, job},
			[]live.Object{liveObject("db"), suspendedJob("job")}, func(p *Policies) {
				p.Orphan = true
			}, []string{"release db", "release job"}, nil, ""},
		"no other objects": {[]appsv1.InventoryEntry{job}, []live.Object{suspendedJob("job")}, nil,
			[]string{"run job"}, nil, ""},
		"by wave, then by position": {[]appsv1.InventoryEntry{preRemoveEntry("a", "late", 0, 1),
			preRemoveEntry("b", "third", 2, 3), preRemoveEntry("b", "second", 2, 2)},
			[]live.Object{suspendedJob("late"), suspendedJob("third"), suspendedJob("second")}, nil,
			[]string{"run second"}, nil, ""},
		"same position concurrently": {[]appsv1.InventoryEntry{preRemoveEntry("a", "x", 0, 1),
			preRemoveEntry("b", "y", 0, 1)}, []live.Object{suspendedJob("x"), suspendedJob("y")}, nil,
			[]string{"run x", "run y"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := Teardown(fixture{entries: tc.entries, live: tc.live, policy: tc.policy}.snapshot())
			removes := actionNames(p.Removals)
			slices.Sort(removes)
			if !slices.Equal(removes, tc.removes) || !slices.Equal(actionNames(p.Waits), tc.waits) {
				t.Errorf("removals %v, waits %v; want %v and %v", removes, actionNames(p.Waits), tc.removes, tc.waits)
			}
			if len(p.Waits) > 0 && !strings.Contains(p.Waits[0].Message, tc.says) {
				t.Errorf("message %q, want %q in it", p.Waits[0].Message, tc.says)
			}
			var failed *PreRemoveError
			if len(p.Waits) > 0 && errors.As(p.Waits[0].Err, &failed) != strings.Contains(name, "failed") {
				t.Errorf("%v", p.Waits[0].Err)
			}
		})
	}
}

func jobItem(component, name string) Item {
	r := jobRef(name)
	return Item{Object: stacks.Object{Ref: r, Version: "v1", Hook: &stacks.Hook{Phase: stacks.HookPreRemove}},
		ID: r.ID(), ContentHash: "want",
		Component: component, PreRemove: 1}
}

// While the stack stays, a pre-remove Job runs when its component is removed together with another
// one.
func TestPreRemoveJobsRunWhenComponentsAreRemoved(t *testing.T) {
	w := fixture{entries: []appsv1.InventoryEntry{preRemoveEntry("drain", "job", 1, 1)},
		live: []live.Object{suspendedJob("job")}}
	for _, name := range []string{"db", "db2", "web"} {
		e := entry(name, appsv1.EntryApplied)
		e.Component = strings.TrimSuffix(name, "2")
		w.entries, w.live = append(w.entries, e), append(w.live, liveObject(name))
	}
	web := Component{Name: "web", Items: []Item{item("web", "web")}}
	db := Component{Name: "db", Items: []Item{item("db", "db"), item("db", "db2")}}
	drain := Component{Name: "drain", Items: []Item{jobItem("drain", "job")}}
	renamed := Component{Name: "drain", Items: []Item{jobItem("drain", "job-2")}}
	for name, tc := range map[string]struct {
		wanted []Component
		want   []string
	}{
		"nothing is removed":         {[]Component{web, db, drain}, nil},
		"both are removed":           {[]Component{web}, []string{"run job"}},
		"only its component":         {[]Component{web, db}, []string{"delete job"}},
		"only another component":     {[]Component{web, drain}, []string{"delete db", "delete db2"}},
		"and a part of another":      {[]Component{web, {Name: "db", Items: db.Items[:1]}}, []string{"delete job"}},
		"the Job is renamed":         {[]Component{db, renamed}, []string{"delete job"}},
		"components without objects": {[]Component{web, {Name: "db"}, {Name: "drain"}}, []string{"run job"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := w
			for i := range tc.wanted { // the renamed Job is applied
				for j := range tc.wanted[i].Items {
					if it := &tc.wanted[i].Items[j]; it.Name == "job-2" {
						w.entries, w.live = append(slices.Clone(w.entries), preRemoveEntry("drain", "job-2", 0, 1)),
							append(slices.Clone(w.live), suspendedJob("job-2"))
					}
				}
			}
			p := Reconcile(w.snapshot(tc.wanted...))
			got := actionNames(p.Removals)
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("removals %v, want %v (waits: %v)", got, tc.want, actionNames(p.Waits))
			}
		})
	}
}

func TestDecidePreRemoveJobOfDesiredComponent(t *testing.T) {
	applied, done := preRemoveEntry("c", "job", 0, 1), preRemoveEntry("c", "job", 0, 1)
	done.State = appsv1.EntryDone
	ordinary := applied
	ordinary.PreRemove = 0
	for name, tc := range map[string]struct {
		entry  appsv1.InventoryEntry
		live   []live.Object
		drift  appsv1.DriftMode
		verb   Verb
		reason Reason
		ready  bool
	}{
		"suspended counts as ready": {applied, []live.Object{suspendedJob("job")}, "", VerbSkip, ReasonUnchanged,
			true},
		"resumed by another client": {applied, []live.Object{suspendedJob("job", running, func(o *live.Object) {
			o.OwnedHash = "BBBBBBBBBBBBBBBB"
		})}, "", VerbUpdate, ReasonDrifted, false},
		"it ran, removal canceled": {done, []live.Object{suspendedJob("job", complete)}, "", VerbUpdate,
			ReasonRemovalCanceled, false},
		"another client ran it": {applied, []live.Object{suspendedJob("job", complete)}, "", VerbUpdate,
			ReasonRemovalCanceled, false},
		"it ran and is gone": {done, nil, appsv1.DriftIgnore, VerbCreate, ReasonChanged, false},
		"an ordinary Job before": {ordinary, []live.Object{suspendedJob("job")}, "", VerbRecord, ReasonMoved,
			true},
		"it is gone":                 {applied, nil, "", VerbCreate, ReasonMissing, false},
		"it is gone, with mode Warn": {applied, nil, appsv1.DriftWarn, VerbSkip, ReasonMissing, true},
		"it is being deleted": {applied, []live.Object{suspendedJob("job", func(o *live.Object) {
			o.Deleting = true
		})}, "", VerbWait, ReasonBeingDeleted, false},
		"it failed, removal canceled": {applied, []live.Object{suspendedJob("job", running, func(o *live.Object) {
			o.Finished, o.Readiness = true, live.Failed
		})}, "", VerbUpdate, ReasonRemovalCanceled, false},
	} {
		t.Run(name, func(t *testing.T) {
			it := jobItem("c", "job")
			w := fixture{entries: []appsv1.InventoryEntry{tc.entry}, live: tc.live, policy: func(p *Policies) {
				if tc.drift != "" {
					p.Drift = tc.drift
				}
			}}
			a, ready := decideItem(w.snapshot(), &it)
			if a.Verb != tc.verb || a.Reason != tc.reason || ready != tc.ready {
				t.Errorf("got %s/%s ready=%t, want %s/%s ready=%t (%s)", a.Verb, a.Reason, ready, tc.verb, tc.reason,
					tc.ready, a.Message)
			}
		})
	}
}

func TestSucceededHooksAreDeleted(t *testing.T) {
	hook := func(policies ...string) Item {
		it := jobItem("c", "job")
		it.PreRemove, it.RunsOnce, it.Hook = 0, true, &stacks.Hook{Phase: stacks.HookPre, DeletePolicies: policies}
		return it
	}
	done := preRemoveEntry("c", "job", 0, 0)
	done.State = appsv1.EntryDone
	applied := preRemoveEntry("c", "job", 0, 0)
	account := item("c", "account")
	account.RunsOnce, account.Hook = true,
		&stacks.Hook{Phase: stacks.HookPre, DeletePolicies: []string{hookSucceededPolicy}}
	accountDone := entry("account", appsv1.EntryDone)
	for name, tc := range map[string]struct {
		items   []Item
		entries []appsv1.InventoryEntry
		live    []live.Object
		want    []string
	}{
		"completed": {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done},
			[]live.Object{suspendedJob("job", complete)}, []string{"delete job"}},
		"completion not recorded": {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{applied},
			[]live.Object{suspendedJob("job", complete)}, []string{"record job"}},
		"default policy": {[]Item{hook("before-hook-creation")}, []appsv1.InventoryEntry{done},
			[]live.Object{suspendedJob("job", complete)}, nil},
		"being deleted": {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done},
			[]live.Object{suspendedJob("job", complete, func(o *live.Object) { o.Deleting = true })}, nil},
		"gone": {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done}, nil, nil},
		"recreated by another client": {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done},
			[]live.Object{suspendedJob("job", complete, func(o *live.Object) { o.UID = "another" })}, nil},
		"protected": {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done},
			[]live.Object{suspendedJob("job", complete, func(o *live.Object) { o.Protected = true })}, nil},
		"another kind than a Job": {[]Item{account}, []appsv1.InventoryEntry{accountDone},
			[]live.Object{liveObject("account")}, []string{"delete account"}},
		"another kind, while a Job of its phase runs": {[]Item{account, hook()},
			[]appsv1.InventoryEntry{accountDone, applied},
			[]live.Object{liveObject("account"), suspendedJob("job")}, nil},
		"another kind, after the Job of its phase": {[]Item{account, hook()},
			[]appsv1.InventoryEntry{accountDone, done},
			[]live.Object{liveObject("account"), suspendedJob("job", complete)}, []string{"delete account"}},
		"component not ready": {[]Item{hook("hook-succeeded"), item("c", "a")},
			[]appsv1.InventoryEntry{done, entry("a", appsv1.EntryApplied)},
			[]live.Object{suspendedJob("job", complete), liveObject("a", func(o *live.Object) {
				o.Readiness = live.InProgress
			})}, []string{"delete job"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Reconcile(fixture{entries: tc.entries, live: tc.live}.snapshot(Component{Name: "c", Items: tc.items}))
			if got := actionNames(p.Actions); !slices.Equal(got, tc.want) {
				t.Errorf("actions %v, want %v", got, tc.want)
			}
			if len(tc.want) > 0 && tc.want[0] == "delete job" && len(p.Intents) != 1 {
				t.Errorf("%d intents", len(p.Intents))
			}
		})
	}
	w := fixture{entries: []appsv1.InventoryEntry{done}, live: []live.Object{suspendedJob("job", complete)},
		policy: func(p *Policies) { p.ProtectKinds = []string{"Job"} }}
	if got := actionNames(
		Reconcile(w.snapshot(Component{Name: "c", Items: []Item{hook("hook-succeeded")}})).Actions); got != nil {
		t.Errorf("actions %v although Jobs are protected", got)
	}
}
