package engine

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

// before is the entry of a Job that runs before a removal.
func before(component, name string, wave, place int32) appsv1.InventoryEntry {
	return appsv1.InventoryEntry{ID: jobRef(name).ID(), Version: "v1", Component: component, Wave: wave, PreRemove: place,
		UID: "uid", Hash: "want", Baseline: base, State: appsv1.EntryApplied}
}

func suspendedJob(name string, change ...func(*live.Object)) live.Object {
	o := live.Object{Ref: jobRef(name), Version: "v1", UID: "uid", Ready: live.InProgress, Suspended: true, Owned: base,
		Mark: live.Mark{Owner: me.String(), ID: jobRef(name).ID()}}
	for _, f := range change {
		f(&o)
	}
	return o
}

func running(o *live.Object) { o.Suspended = false }
func complete(o *live.Object) {
	o.Suspended, o.Done, o.Succeeded, o.Ready = false, true, true, live.Current
}

// steps are what a plan does and waits for: verb and name of each object.
func did(actions []Action) (out []string) {
	for i := range actions {
		out = append(out, string(actions[i].Verb)+" "+refOf(&actions[i]).Name)
	}
	return out
}

func TestJobsRunBeforeATeardown(t *testing.T) {
	db, job := entry("db", appsv1.EntryApplied), before("drain", "job", 1, 1)
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
		"first of all":            {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db"), suspendedJob("job")}, nil, []string{"run job"}, nil, ""},
		"until it is done":        {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db"), suspendedJob("job", running)}, nil, nil, []string{"wait job"}, "Job ns/job runs before anything is removed, and is not done"},
		"which is recorded":       {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db"), suspendedJob("job", complete)}, nil, []string{"record job"}, nil, ""},
		"then it goes, too":       {[]appsv1.InventoryEntry{db, done}, []live.Object{alive("db"), suspendedJob("job", complete)}, nil, []string{"delete job"}, nil, ""},
		"also when it went":       {[]appsv1.InventoryEntry{db, done}, []live.Object{alive("db")}, nil, []string{"delete job"}, nil, ""},
		"nobody knows it":         {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db")}, nil, []string{"run job"}, nil, ""},
		"it is being deleted":     {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db"), suspendedJob("job", func(o *live.Object) { o.Deleting = true })}, nil, nil, []string{"wait job"}, "is being deleted"},
		"it failed":               {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db"), suspendedJob("job", running, func(o *live.Object) { o.Ready, o.Message = live.Failed, "BackoffLimitExceeded" })}, nil, nil, []string{"wait job"}, "has failed (BackoffLimitExceeded)"},
		"a person protects it":    {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db"), suspendedJob("job", func(o *live.Object) { o.Protected = true })}, nil, nil, []string{"wait job"}, live.PreventDeletionAnnotation},
		"somebody made it anew":   {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db"), suspendedJob("job", func(o *live.Object) { o.UID = "another" })}, nil, []string{"record job"}, nil, ""},
		"another install has it":  {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db"), suspendedJob("job", func(o *live.Object) { o.Mark.Owner = other.String() })}, nil, []string{"record job"}, nil, ""},
		"not when all is left":    {[]appsv1.InventoryEntry{db, job}, []live.Object{alive("db"), suspendedJob("job")}, func(p *Policies) { p.Orphan = true }, []string{"release db", "release job"}, nil, ""},
		"the only thing there is": {[]appsv1.InventoryEntry{job}, []live.Object{suspendedJob("job")}, nil, []string{"run job"}, nil, ""},
		"by wave, then by place": {[]appsv1.InventoryEntry{before("a", "late", 0, 1), before("b", "third", 2, 3), before("b", "second", 2, 2)},
			[]live.Object{suspendedJob("late"), suspendedJob("third"), suspendedJob("second")}, nil, []string{"run second"}, nil, ""},
		"those of one place at once": {[]appsv1.InventoryEntry{before("a", "x", 0, 1), before("b", "y", 0, 1)}, []live.Object{suspendedJob("x"), suspendedJob("y")}, nil, []string{"run x", "run y"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := PlanTeardown(world{entries: tc.entries, live: tc.live, policy: tc.policy}.input())
			removes := did(p.Removals)
			slices.Sort(removes)
			if !slices.Equal(removes, tc.removes) || !slices.Equal(did(p.Waits), tc.waits) {
				t.Errorf("does %v and waits for %v, want %v and %v", removes, did(p.Waits), tc.removes, tc.waits)
			}
			if len(p.Waits) > 0 && !strings.Contains(p.Waits[0].Message, tc.says) {
				t.Errorf("says %q, not %q", p.Waits[0].Message, tc.says)
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
	return Item{Object: stacks.Object{Ref: r, Version: "v1", Hook: &stacks.Hook{Phase: stacks.HookPreRemove}}, ID: r.ID(), Want: "want",
		Component: component, PreRemove: 1}
}

// Of a stack that stays, a Job runs when what it belongs to goes, and not alone.
func TestJobsRunBeforeComponentsLeave(t *testing.T) {
	w := world{entries: []appsv1.InventoryEntry{before("drain", "job", 1, 1)}, live: []live.Object{suspendedJob("job")}}
	for _, name := range []string{"db", "db2", "web"} {
		e := entry(name, appsv1.EntryApplied)
		e.Component = strings.TrimSuffix(name, "2")
		w.entries, w.live = append(w.entries, e), append(w.live, alive(name))
	}
	web := Component{Name: "web", Items: []Item{item("web", "web")}}
	db := Component{Name: "db", Items: []Item{item("db", "db"), item("db", "db2")}}
	drain := Component{Name: "drain", Items: []Item{jobItem("drain", "job")}}
	renamed := Component{Name: "drain", Items: []Item{jobItem("drain", "job-2")}}
	for name, tc := range map[string]struct {
		wanted []Component
		want   []string
	}{
		"nothing leaves":             {[]Component{web, db, drain}, nil},
		"both leave":                 {[]Component{web}, []string{"run job"}},
		"it leaves alone":            {[]Component{web, db}, []string{"delete job"}},
		"it stays":                   {[]Component{web, drain}, []string{"delete db", "delete db2"}},
		"a part of another leaves":   {[]Component{web, {Name: "db", Items: db.Items[:1]}}, []string{"delete job"}},
		"it changed its name":        {[]Component{db, renamed}, []string{"delete job"}},
		"components without objects": {[]Component{web, {Name: "db"}, {Name: "drain"}}, []string{"run job"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := w
			for i := range tc.wanted { // what is wanted anew was applied
				for j := range tc.wanted[i].Items {
					if it := &tc.wanted[i].Items[j]; it.Name == "job-2" {
						w.entries, w.live = append(slices.Clone(w.entries), before("drain", "job-2", 0, 1)), append(slices.Clone(w.live), suspendedJob("job-2"))
					}
				}
			}
			p := MakePlan(w.input(tc.wanted...))
			got := did(p.Removals)
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("does %v, want %v (waits: %v)", got, tc.want, did(p.Waits))
			}
		})
	}
}

func TestDecideAJobThatRunsBeforeRemoval(t *testing.T) {
	applied, done := before("c", "job", 0, 1), before("c", "job", 0, 1)
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
		"suspended, it is ready":            {applied, []live.Object{suspendedJob("job")}, "", Skip, Unchanged, true},
		"somebody let it run":               {applied, []live.Object{suspendedJob("job", running, func(o *live.Object) { o.Owned = "BBBBBBBBBBBBBBBB" })}, "", Update, Drifted, false},
		"it ran, and the removal was not":   {done, []live.Object{suspendedJob("job", complete)}, "", Update, Spent, false},
		"somebody ran it":                   {applied, []live.Object{suspendedJob("job", complete)}, "", Update, Spent, false},
		"it ran and is gone":                {done, nil, appsv1.DriftIgnore, Create, Changed, false},
		"it was an ordinary one until now":  {ordinary, []live.Object{suspendedJob("job")}, "", Record, Moved, true},
		"it is gone":                        {applied, nil, "", Create, Missing, false},
		"it is gone, and drift is left so":  {applied, nil, appsv1.DriftWarn, Skip, Missing, true},
		"it is going":                       {applied, []live.Object{suspendedJob("job", func(o *live.Object) { o.Deleting = true })}, "", Wait, Leaving, false},
		"it failed, and the removal is off": {applied, []live.Object{suspendedJob("job", running, func(o *live.Object) { o.Done, o.Ready = true, live.Failed })}, "", Update, Spent, false},
	} {
		t.Run(name, func(t *testing.T) {
			it := jobItem("c", "job")
			w := world{entries: []appsv1.InventoryEntry{tc.entry}, live: tc.live, policy: func(p *Policies) {
				if tc.drift != "" {
					p.Drift = tc.drift
				}
			}}
			a, ready := decide(w.input(), &it)
			if a.Verb != tc.verb || a.Reason != tc.reason || ready != tc.ready {
				t.Errorf("got %s/%s ready=%t, want %s/%s ready=%t (%s)", a.Verb, a.Reason, ready, tc.verb, tc.reason, tc.ready, a.Message)
			}
		})
	}
}

func TestHooksThatSucceededExpire(t *testing.T) {
	hook := func(policies ...string) Item {
		it := jobItem("c", "job")
		it.PreRemove, it.RunsOnce, it.Hook = 0, true, &stacks.Hook{Phase: stacks.HookPre, DeletePolicies: policies}
		return it
	}
	done := before("c", "job", 0, 0)
	done.State = appsv1.EntryDone
	applied := before("c", "job", 0, 0)
	account := item("c", "account")
	account.RunsOnce, account.Hook = true, &stacks.Hook{Phase: stacks.HookPre, DeletePolicies: []string{hookSucceeded}}
	accountDone := entry("account", appsv1.EntryDone)
	for name, tc := range map[string]struct {
		items   []Item
		entries []appsv1.InventoryEntry
		live    []live.Object
		want    []string
	}{
		"when it is done":              {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done}, []live.Object{suspendedJob("job", complete)}, []string{"delete job"}},
		"not before that is recorded":  {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{applied}, []live.Object{suspendedJob("job", complete)}, []string{"record job"}},
		"not by default":               {[]Item{hook("before-hook-creation")}, []appsv1.InventoryEntry{done}, []live.Object{suspendedJob("job", complete)}, nil},
		"not twice":                    {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done}, []live.Object{suspendedJob("job", complete, func(o *live.Object) { o.Deleting = true })}, nil},
		"it is gone":                   {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done}, nil, nil},
		"not somebody else's":          {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done}, []live.Object{suspendedJob("job", complete, func(o *live.Object) { o.UID = "another" })}, nil},
		"not one that is protected":    {[]Item{hook("hook-succeeded")}, []appsv1.InventoryEntry{done}, []live.Object{suspendedJob("job", complete, func(o *live.Object) { o.Protected = true })}, nil},
		"not what its like are to use": {[]Item{account}, []appsv1.InventoryEntry{accountDone}, []live.Object{alive("account")}, nil},
		"not while others are not ready": {[]Item{hook("hook-succeeded"), item("c", "a")}, []appsv1.InventoryEntry{done, entry("a", appsv1.EntryApplied)},
			[]live.Object{suspendedJob("job", complete), alive("a", func(o *live.Object) { o.Ready = live.InProgress })}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := MakePlan(world{entries: tc.entries, live: tc.live}.input(Component{Name: "c", Items: tc.items}))
			if got := did(p.Actions); !slices.Equal(got, tc.want) {
				t.Errorf("does %v, want %v", got, tc.want)
			}
			if len(tc.want) > 0 && tc.want[0] == "delete job" && (len(p.Intents) != 1 || !p.Components[0].Ready) {
				t.Errorf("%d are recorded first, ready: %t", len(p.Intents), p.Components[0].Ready)
			}
		})
	}
	w := world{entries: []appsv1.InventoryEntry{done}, live: []live.Object{suspendedJob("job", complete)}, policy: func(p *Policies) { p.Protect = []string{"Job"} }}
	if got := did(MakePlan(w.input(Component{Name: "c", Items: []Item{hook("hook-succeeded")}})).Actions); got != nil {
		t.Errorf("Jobs are never deleted, and it does %v", got)
	}
}
