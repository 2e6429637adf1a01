package engine

import (
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func TestHolds(t *testing.T) {
	h := newHolds()
	held := hold{until: noon.Add(time.Minute), want: "v1", err: errors.New("no")}
	h.put("me", "a", held)
	for name, tc := range map[string]struct {
		owner, id, want string
		at              time.Duration
		held            bool
	}{
		"held":                   {"me", "a", "v1", 0, true},
		"to the last moment":     {"me", "a", "v1", time.Minute - 1, true},
		"until":                  {"me", "a", "v1", time.Minute, false},
		"another content":        {"me", "a", "v2", 0, false},
		"to be removed":          {"me", "a", "", 0, false},
		"another object":         {"me", "b", "v1", 0, false},
		"another owner's object": {"you", "a", "v1", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			h.put("me", "a", held)
			got := h.why(tc.owner, tc.id, tc.want, noon.Add(tc.at))
			if (got == "no") != tc.held {
				t.Errorf("got %q", got)
			}
			if again := h.why(tc.owner, tc.id, tc.want, noon.Add(tc.at)); again != got {
				t.Errorf("asked again: %q", again)
			}
		})
	}
	// A hold that another content lifted does not come back with the old one.
	h.put("me", "a", held)
	h.why("me", "a", "v2", noon)
	if got := h.why("me", "a", "v1", noon); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestStandingHolds(t *testing.T) {
	h := newHolds()
	if at, errs := h.standing("me", noon); !at.IsZero() || errs != nil {
		t.Errorf("%s, %v", at, errs)
	}
	for id, after := range map[string]time.Duration{"c": 3 * time.Minute, "a": 2 * time.Minute, "b": time.Minute, "over": 0} {
		h.put("me", id, hold{until: noon.Add(after), err: errors.New(id)})
	}
	h.put("you", "a", hold{until: noon.Add(time.Second), err: errors.New("yours")})
	at, errs := h.standing("me", noon)
	if !at.Equal(noon.Add(time.Minute)) {
		t.Errorf("the first ends at %s", at)
	}
	if got := errors.Join(errs...).Error(); got != "a\nb\nc" {
		t.Errorf("errors %q: want them in the order of their objects", got)
	}
	h.drop("me", "b")
	if at, _ := h.standing("me", noon); !at.Equal(noon.Add(2 * time.Minute)) {
		t.Errorf("the next ends at %s", at)
	}
	h.forget("me")
	if at, errs := h.standing("me", noon); !at.IsZero() || errs != nil {
		t.Errorf("%s, %v", at, errs)
	}
	if _, errs := h.standing("you", noon); len(errs) != 1 {
		t.Error("another owner's holds went, too")
	}
}

func TestDeletionsAreRemembered(t *testing.T) {
	h := newHolds()
	h.deleted("me", "a", "uid")
	h.deleted("you", "a", "other")
	if h.wasDeleted("me", "a") != "uid" || h.wasDeleted("me", "b") != "" || h.wasDeleted("nobody", "a") != "" {
		t.Error("not as it was noted")
	}
	h.forgive("me")
	if h.wasDeleted("me", "a") != "uid" {
		t.Error("a person who asks for another try does not undo a delete")
	}
	h.undelete("me", "a")
	h.undelete("nobody", "a")
	if h.wasDeleted("me", "a") != "" || h.wasDeleted("you", "a") != "other" {
		t.Error("one is undone")
	}
}

// fight is an engine and an owner whose object somebody else keeps changing.
type fight struct {
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	*Engine
	owner Owner
	rep   Report
}

func newFight(t *testing.T) *fight {
	c := clocktesting.NewFakePassiveClock(noon)
	return &fight{t: t, clock: c, Engine: New(Options{Clock: c}), owner: keyOnly{}}
}

// keyOnly is an owner of which nothing but the key is asked.
type keyOnly struct{ Owner }

func (keyOnly) Key() OwnerKey { return me }

// contested is true when a correction planned now is one too many; it is made otherwise.
func (f *fight) contested(reason Reason, names ...string) bool {
	var p Plan
	for _, name := range names {
		it := item("c", name)
		l := alive(name, func(o *live.Object) { o.OtherManager = "kubectl" })
		p.Actions = append(p.Actions, Action{Verb: Update, Reason: reason, Item: &it, Entry: entry(name, appsv1.EntryApplied), Live: &l})
	}
	if f.contest(f.owner, Retry{Interval: time.Minute, Contested: 10 * time.Minute}, &p, &f.rep) {
		return true
	}
	for i := range p.Actions {
		if corrects(&p.Actions[i]) {
			f.holds.corrected(me.String(), p.Actions[i].Entry.ID, f.clock.Now())
		}
	}
	return false
}

func (f *fight) after(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

func (f *fight) held(name string) string {
	return f.holds.why(me.String(), ref(name).ID(), "want", f.clock.Now())
}

func TestContest(t *testing.T) {
	f := newFight(t)
	for i := range maxCorrections {
		if f.contested(Drifted, "a") {
			t.Fatalf("correction %d is none too many", i+1)
		}
		f.after(time.Second)
	}
	if len(f.rep.Contested) > 0 || f.held("a") != "" {
		t.Error("said before it is so")
	}
	if !f.contested(Drifted, "a") {
		t.Fatal("it goes on for ever")
	}
	if len(f.rep.Contested) != 1 || f.rep.Contested[0].Ref != ref("a") {
		t.Errorf("said: %+v", f.rep.Contested)
	}
	if why := f.held("a"); why == "" || why != f.rep.Contested[0].Note {
		t.Errorf("held for %q, said %q", why, f.rep.Contested[0].Note)
	}
	const note = "ConfigMap ns/a keeps being changed by kubectl: corrected 3 times in a minute, left alone until 12:10:03 (or let it have the fields with spec.drift.ignore)"
	if got := f.rep.Contested[0].Note; got != note {
		t.Errorf("said %q", got)
	}
	if f.contested(Drifted, "b") {
		t.Error("another object is another fight")
	}
	f.after(10 * time.Minute)
	if f.held("a") != "" || f.contested(Drifted, "a") {
		t.Error("it is tried again when its time has come")
	}
}

func TestContestCountsOneMinute(t *testing.T) {
	f := newFight(t)
	for range 20 { // one in 20 seconds is a writer that can be lived with
		if f.contested(Drifted, "a") {
			t.Fatal("three in a minute are not too many")
		}
		f.after(20 * time.Second)
	}
	f.after(-time.Second)
	f.contested(Drifted, "a")
	if !f.contested(Drifted, "a") {
		t.Error("five in a minute are")
	}
}

func TestContestIsOfCorrectionsOnly(t *testing.T) {
	f := newFight(t)
	for range 10 {
		for _, r := range []Reason{NewObject, Changed, Taken, Finished, Moved} {
			if f.contested(r, "a") {
				t.Fatalf("%s is what the repository says", r)
			}
		}
	}
	for range maxCorrections {
		f.contested(Missing, "a") // somebody deletes it
	}
	if !f.contested(Drifted, "a") {
		t.Error("deleting and changing it are one fight")
	}
}

// A person who asks for a try gets one, and a different content is no fight.
func TestForgiveness(t *testing.T) {
	f := newFight(t)
	for range maxCorrections + 1 {
		f.contested(Drifted, "a")
	}
	if why := f.holds.why(me.String(), ref("a").ID(), "another content", f.clock.Now()); why != "" {
		t.Errorf("what the repository says now is sent at once, not held: %s", why)
	}
	for range maxCorrections + 1 {
		f.contested(Drifted, "b")
	}
	f.Forgive(me)
	if f.held("b") != "" {
		t.Error("still held")
	}
	if f.contested(Drifted, "b") {
		t.Error("asked for, and not tried")
	}
}

// idleOwner has nothing.
type idleOwner struct{ keyOnly }

func (idleOwner) Inventory() *Inventory { return NewInventory(nil, nil) }
func (idleOwner) Policies() Policies    { return DefaultPolicies }

// What is due when a pass ends was left alone by its plan all the same: somebody has
// to come back for it.
func TestAHoldThatEndsDuringAPassIsComeBackFor(t *testing.T) {
	f := newFight(t)
	index, err := live.New(&rest.Config{Host: "127.0.0.1:1"}, live.Options{Owner: "me"})
	if err != nil {
		t.Fatal(err)
	}
	it := item("c", "a")
	until := noon.Add(time.Second)
	f.holds.put(me.String(), it.ID, hold{since: noon, until: until, want: it.Want, err: errors.New("no")})
	rep, err := f.rounds(t.Context(), &Target{Index: index}, nil, idleOwner{}, Retry{}, nil, func(in *Input) Plan {
		if in.Held(&it) == "" {
			t.Error("the plan does not leave it alone")
		}
		f.after(time.Minute)
		return Plan{}
	})
	if err != nil || !rep.RetryAt.Equal(until) || len(rep.Errors) != 1 {
		t.Errorf("comes back at %s, for %v (%v)", rep.RetryAt, rep.Errors, err)
	}
}
