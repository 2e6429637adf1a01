package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// crowd are n objects that were applied.
func crowd(n int) (w world) {
	for i := range n {
		name := fmt.Sprintf("o%03d", i)
		w.entries, w.live = append(w.entries, entry(name, appsv1.EntryApplied)), append(w.live, alive(name))
	}
	return w
}

func TestGuardOfDeletes(t *testing.T) {
	for name, tc := range map[string]struct {
		total, leaves int
		policy        func(*Policies)
		held          bool
	}{
		"few":                       {20, 10, nil, false},
		"all of few":                {10, 10, nil, false},
		"more than half":            {20, 11, nil, true},
		"half of many":              {40, 20, nil, false},
		"many":                      {200, 50, nil, false},
		"too many":                  {200, 51, nil, true},
		"none may go":               {5, 1, func(p *Policies) { p.MaxDeletes = 0 }, true},
		"a higher share":            {20, 11, func(p *Policies) { p.MaxDeletePercent = 60 }, false},
		"a higher number":           {200, 90, func(p *Policies) { p.MaxDeletes = 100 }, false},
		"released and not deleted":  {200, 200, func(p *Policies) { p.Prune = false }, false},
		"approved for another set":  {200, 51, func(p *Policies) { p.Approved = digest(nil) }, true},
		"approved for exactly this": {200, 51, func(p *Policies) { p.Approved = digest(crowd(51).entries) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := crowd(tc.total)
			w.policy = tc.policy
			var keep []Item
			for i := tc.leaves; i < tc.total; i++ {
				keep = append(keep, item("c", fmt.Sprintf("o%03d", i)))
			}
			p := MakePlan(w.input(Component{Name: "c", Items: keep}))
			var held *HeldError
			for _, a := range p.Waits {
				errors.As(a.Err, &held)
			}
			switch {
			case (held != nil) != tc.held:
				t.Errorf("held: %v", held)
			case !tc.held && len(p.Removals) != tc.leaves:
				t.Errorf("%d go, want %d", len(p.Removals), tc.leaves)
			case tc.held && (len(p.Removals) > 0 || held.Deletes != tc.leaves || held.Total != tc.total || p.Ready()):
				t.Errorf("%d go, %v", len(p.Removals), held)
			}
		})
	}
}

// What comes in the place of what leaves is in the inventory already when that is
// judged, and makes it no smaller a part of what there was.
func TestGuardCountsWhatThereWasBefore(t *testing.T) {
	heir := func(string) (*OwnerKey, string) { return nil, "wait" }
	for name, tc := range map[string]struct {
		before, leaves, added int
		policy                func(*Policies)
		held, settled         bool
	}{
		"nothing leaves":                     {40, 0, 40, nil, false, true},
		"all are replaced":                   {40, 40, 40, nil, true, false},
		"all are replaced by many more":      {40, 40, 200, nil, true, false},
		"half is replaced":                   {40, 20, 20, nil, false, true},
		"more than half is replaced":         {40, 21, 200, nil, true, false},
		"a few are replaced":                 {10, 10, 10, nil, false, true},
		"before was not recorded":            {0, 20, 40, nil, false, true},
		"what never was complete is not all": {5, 20, 40, nil, true, false},
		"others may want it":                 {40, 20, 20, func(p *Policies) { p.Heir = heir }, false, false},
		"approved":                           {40, 40, 40, func(p *Policies) { p.Approved = digest(crowd(40).entries) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := crowd(max(tc.before, tc.leaves) + tc.added)
			w.policy = tc.policy
			var keep []Item
			for i := tc.leaves; i < len(w.entries); i++ {
				keep = append(keep, item("c", fmt.Sprintf("o%03d", i)))
			}
			in := w.input(Component{Name: "c", Items: keep})
			in.Inventory.settled = tc.before
			p := MakePlan(in)
			if held := slices.ContainsFunc(p.Waits, func(a Action) bool { return a.Reason == Guarded }); held != tc.held || p.Settled != tc.settled {
				t.Errorf("held: %t, settled: %t", held, p.Settled)
			}
		})
	}
	w := world{entries: crowd(1).entries, live: crowd(1).live}
	if MakePlan(w.input(Component{Name: "c", Items: []Item{item("c", "o000"), item("c", "new")}})).Settled {
		t.Error("something is not sent")
	}
	in := w.input()
	in.Inventory.settle(nil)
	if again := NewInventory(in.Inventory.Status(), nil); again.before(nil) != 1 || again.settled != 1 {
		t.Errorf("after a restart there were %d", again.settled)
	}
}

// What a revision added that never was complete may go when that is taken back: it is
// no part of what there was before.
func TestGuardOfAChangeThatIsTakenBack(t *testing.T) {
	for name, tc := range map[string]struct {
		before, added int
		from, to      int // what stays
		intended      int // what was added and not made
		held          string
	}{
		"as it was":                    {20, 15, 0, 20, 0, ""},
		"more than there was":          {20, 30, 0, 20, 0, "30 of 50"},
		"what is not made is not lost": {20, 30, 0, 20, 15, ""},
		"nor was it there":             {20, 45, 0, 20, 20, "25 of 45"},
		"more than may go at once":     {200, 51, 0, 200, 0, "51 of 251"},
		"in part":                      {20, 15, 0, 21, 0, "14 of 20"},
		"as many as there were stay":   {20, 15, 15, 35, 0, "15 of 20"},
		"what it added stays":          {40, 40, 40, 80, 0, "40 of 40"},
		"and something of what it had": {20, 15, 0, 19, 0, "16 of 20"},
	} {
		t.Run(name, func(t *testing.T) {
			w := crowd(tc.before)
			wanted := map[string]bool{}
			for _, e := range w.entries {
				wanted[e.ID] = true
			}
			inv := w.input().Inventory
			inv.settle(wanted)
			var keep []Item
			for i := tc.from; i < tc.to; i++ {
				keep = append(keep, item("c", fmt.Sprintf("o%03d", i)))
			}
			w = crowd(tc.before + tc.added)
			in := w.input(Component{Name: "c", Items: keep})
			for i := range tc.intended {
				w.entries[len(w.entries)-1-i].State = appsv1.EntryIntended
			}
			status := inv.Status() // it lasts
			status.Entries = w.entries
			in.Inventory = NewInventory(status, nil)
			p := MakePlan(in)
			if tc.held == "" && len(p.Removals) != tc.added {
				t.Errorf("%d go: %+v", len(p.Removals), p.Waits)
			}
			if tc.held != "" && (len(p.Waits) != 1 || !strings.HasPrefix(p.Waits[0].Message, tc.held+" objects left the stack")) {
				t.Errorf("%d go: %+v", len(p.Removals), p.Waits)
			}
		})
	}
}

// What was approved goes on without another approval when a part of it is gone.
func TestApprovalOutlivesItsSet(t *testing.T) {
	w := crowd(60)
	w.policy = func(p *Policies) { p.Approved = digest(crowd(60).entries) }
	first := MakePlan(w.input())
	if len(first.Intents) != 60 || len(first.Removals) != 60 {
		t.Fatalf("%d are recorded, %d go", len(first.Intents), len(first.Removals))
	}
	w.entries, w.policy = first.Intents[1:], nil
	if p := MakePlan(w.input()); len(p.Removals) != 59 || len(p.Intents) != 0 {
		t.Errorf("%d go on, %d are recorded", len(p.Removals), len(p.Intents))
	}
	back := w.entries[0]
	p := MakePlan((world{entries: w.entries[:1], live: w.live}).input(Component{Name: "c", Items: []Item{item("c", "o001")}}))
	if len(p.Actions) != 1 || p.Actions[0].Verb != Record {
		t.Errorf("%s is wanted again, and needs approval the next time: %+v", back.ID, p.Actions)
	}
}

func TestHeirs(t *testing.T) {
	theirs := func(o *live.Object) { o.Mark.Owner = other.String() }
	heir := func(string) (*OwnerKey, string) { return &other, "" }
	for name, tc := range map[string]struct {
		world  world
		heir   func(string) (*OwnerKey, string)
		verb   Verb
		reason Reason
	}{
		"nobody wants it":           {crowd(1), func(string) (*OwnerKey, string) { return nil, "" }, Delete, Removed},
		"nobody ever does":          {crowd(1), nil, Delete, Removed},
		"somebody does":             {crowd(1), heir, HandOver, Moved},
		"that is not known":         {crowd(1), func(string) (*OwnerKey, string) { return nil, "wait" }, Wait, Claimable},
		"it was handed over before": {world{entries: crowd(1).entries, live: []live.Object{alive("o000", theirs)}}, heir, Drop, Owned},
		"it failed before":          {world{entries: crowd(1).entries, live: crowd(1).live, held: map[string]string{ref("o000").ID(): "no"}}, heir, Wait, Held},
		"a namespace is shared": {world{entries: []appsv1.InventoryEntry{{ID: stacks.Ref{Kind: "Namespace", Name: "x"}.ID(), Version: "v1",
			State: appsv1.EntryShared, Hash: sharedHash}}}, heir, Delete, Removed},
	} {
		for _, teardown := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, teardown %t", name, teardown), func(t *testing.T) {
				tc.world.policy = func(p *Policies) { p.Heir = tc.heir }
				p := MakePlan(tc.world.input())
				if teardown {
					p = PlanTeardown(tc.world.input())
				}
				all := slices.Concat(p.Removals, p.Waits)
				if len(all) != 1 || all[0].Verb != tc.verb || all[0].Reason != tc.reason {
					t.Errorf("got %+v, want %s/%s", all, tc.verb, tc.reason)
				}
			})
		}
	}
}

func TestOrphans(t *testing.T) {
	protected := func(o *live.Object) { o.Protected = true }
	w := world{entries: []appsv1.InventoryEntry{entry("a", appsv1.EntryApplied), entry("b", appsv1.EntryApplied), entry("c", appsv1.EntryIntended)},
		live: []live.Object{alive("a"), alive("b", protected)}, policy: func(p *Policies) { p.Orphan = true }}
	p := PlanTeardown(w.input())
	same(t, "removals", verbs(p.Removals), "release "+ref("a").ID(), "release "+ref("b").ID(), "release "+ref("c").ID())
	w.policy = nil
	p = PlanTeardown(w.input())
	same(t, "without it", verbs(p.Removals), "delete "+ref("a").ID(), "delete "+ref("c").ID())
	same(t, "what waits", verbs(p.Waits), "wait "+ref("b").ID())
}

func TestLeavingSaysWhatItWaitsFor(t *testing.T) {
	for want, err := range map[string]*LeavingError{
		"ConfigMap ns/a is being deleted":            {Ref: ref("a")},
		"ConfigMap ns/a is being deleted: x is left": {Ref: ref("a"), Remains: "x is left"},
		"ConfigMap ns/a is being deleted since 2026-01-02T03:04:05Z: waits for finalizers [x], which m set": {Ref: ref("a"), Finalizers: []string{"x"}, By: "m", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if e := (&HeldError{Deletes: 5, Total: 9, Digest: "abc"}).Error(); !strings.Contains(e, "ksctl.com/approve=abc") {
		t.Error(e)
	}
}

func TestDigest(t *testing.T) {
	a, b := appsv1.InventoryEntry{ID: "n_a__ConfigMap", UID: "1"}, appsv1.InventoryEntry{ID: "n_b__ConfigMap", UID: "2"}
	record := appsv1.InventoryEntry{ID: "n_sh.helm.release.v1.web.v1__Secret", UID: "3"}
	all := Digest([]appsv1.InventoryEntry{a, b, record})
	if other := Digest([]appsv1.InventoryEntry{record, b, a}); other != all || len(all) != 16 {
		t.Errorf("%s and, in another order, %s", all, other)
	}
	claimed, anew := a, a
	claimed.State, anew.UID = appsv1.EntryApplied, "9"
	if Digest([]appsv1.InventoryEntry{claimed, b, record}) != all {
		t.Error("how far an object came changes the digest")
	}
	for name, set := range map[string][]appsv1.InventoryEntry{"an object less": {a, record}, "no record": {a, b}, "made anew": {anew, b, record}, "nothing": nil} {
		if Digest(set) == all {
			t.Errorf("%s: the same digest", name)
		}
	}
}
