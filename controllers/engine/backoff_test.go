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

func TestBackoffIsActive(t *testing.T) {
	s := newBackoffs()
	s.record("me", "a", backoff{retryAt: noon.Add(time.Minute), want: "v1", err: errors.New("no")})
	for name, tc := range map[string]struct {
		owner, id, want string
		at              time.Duration
		active          bool
	}{
		"the content that failed": {"me", "a", "v1", 0, true},
		"to the last moment":      {"me", "a", "v1", time.Minute - 1, true},
		"expired":                 {"me", "a", "v1", time.Minute, false},
		"other content":           {"me", "a", "v2", 0, false},
		"to be deleted":           {"me", "a", "", 0, false},
		"another object":          {"me", "b", "v1", 0, false},
		"another owner's object":  {"you", "a", "v1", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.active(tc.owner, tc.id, tc.want, noon.Add(tc.at)); (got == "no") != tc.active {
				t.Errorf("got %q", got)
			}
			if s.active("me", "a", "v1", noon) == "" {
				t.Error("asking cleared the back-off")
			}
		})
	}
}

func TestPruneDropsBackoffsThatNoLongerApply(t *testing.T) {
	s := newBackoffs()
	for id, b := range map[string]backoff{
		"same":    {retryAt: noon.Add(time.Hour), want: "v1"},
		"changed": {retryAt: noon.Add(time.Hour), want: "v1"},
		"leaves":  {retryAt: noon.Add(time.Hour), want: "v1"},
		"leaving": {retryAt: noon.Add(time.Hour)},
		"expired": {retryAt: noon, want: "v1"},
	} {
		b.err = errors.New(id)
		s.record("me", id, b)
	}
	s.record("you", "changed", backoff{retryAt: noon.Add(time.Hour), want: "v1", err: errors.New("yours")})
	s.prune("me", map[string]string{"same": "v1", "changed": "v2", "expired": "v1"}, noon)
	if _, errs := s.nextRetry("me", noon.Add(-time.Second)); errors.Join(errs...).Error() != "leaving\nsame" {
		t.Errorf("kept %v", errs)
	}
	if s.active("me", "changed", "v1", noon) != "" {
		t.Error("a back-off that new content ended came back with the old content")
	}
	if s.active("you", "changed", "v1", noon) == "" {
		t.Error("the back-off of another owner is gone")
	}
}

func TestNextRetry(t *testing.T) {
	s := newBackoffs()
	if at, errs := s.nextRetry("me", noon); !at.IsZero() || errs != nil {
		t.Errorf("%s, %v", at, errs)
	}
	for id, after := range map[string]time.Duration{"c": 3 * time.Minute, "a": 2 * time.Minute, "b": time.Minute, "expired": 0} {
		s.record("me", id, backoff{retryAt: noon.Add(after), err: errors.New(id)})
	}
	s.record("you", "a", backoff{retryAt: noon.Add(time.Second), err: errors.New("yours")})
	at, errs := s.nextRetry("me", noon)
	if !at.Equal(noon.Add(time.Minute)) {
		t.Errorf("the first ends at %s", at)
	}
	if got := errors.Join(errs...).Error(); got != "a\nb\nc" {
		t.Errorf("errors %q: want them in the order of their objects", got)
	}
	s.reset("me", "b")
	if at, _ := s.nextRetry("me", noon); !at.Equal(noon.Add(2 * time.Minute)) {
		t.Errorf("the next ends at %s", at)
	}
	s.resetAll("me")
	if at, errs := s.nextRetry("me", noon); !at.IsZero() || errs != nil {
		t.Errorf("%s, %v", at, errs)
	}
	if _, errs := s.nextRetry("you", noon); len(errs) != 1 {
		t.Error("the back-offs of another owner are gone")
	}
}

// A removal is rehearsed on the inventory of an install, whose back-offs stay as they are.
func TestRehearsalKeepsTheBackoffsOfTheInstall(t *testing.T) {
	f := newFight(t)
	index, err := live.New(&rest.Config{Host: "127.0.0.1:1"}, live.Options{Owner: "me"})
	if err != nil {
		t.Fatal(err)
	}
	id := ref("a").ID()
	f.backoffs.record(me.String(), id, backoff{start: noon, retryAt: noon.Add(time.Hour), want: "want", err: errors.New("no")})
	view := &View{Of: me, Entries: NewInventory(nil, nil), Policy: DefaultPolicies}
	view.Entries.Put(entry("a", appsv1.EntryApplied))
	view.Policy.Asked = func(*appsv1.InventoryEntry) *Request { return &Request{} }
	if remarks := f.Standing(&Target{Index: index}, view); len(remarks) != 1 {
		t.Fatalf("the rehearsal looked at %d objects", len(remarks))
	}
	if f.backedOff("a") == "" {
		t.Error("the rehearsal cleared the back-off")
	}
}

func TestPendingDeletions(t *testing.T) {
	d := newPendingDeletions()
	d.record("me", "a", "uid")
	d.record("you", "a", "other")
	if d.uid("me", "a") != "uid" || d.uid("me", "b") != "" || d.uid("nobody", "a") != "" {
		t.Error("not as recorded")
	}
	d.reset("me", "a")
	d.reset("nobody", "a")
	if d.uid("me", "a") != "" || d.uid("you", "a") != "other" {
		t.Error("reset of one object")
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
			f.corrections.record(me.String(), p.Actions[i].Entry.ID, f.clock.Now())
		}
	}
	return false
}

func (f *fight) after(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

func (f *fight) backedOff(name string) string {
	return f.backoffs.active(me.String(), ref(name).ID(), "want", f.clock.Now())
}

func TestContest(t *testing.T) {
	f := newFight(t)
	for i := range maxCorrections {
		if f.contested(Drifted, "a") {
			t.Fatalf("correction %d is none too many", i+1)
		}
		f.after(time.Second)
	}
	if len(f.rep.Contested) > 0 || f.backedOff("a") != "" {
		t.Error("said before it is so")
	}
	if !f.contested(Drifted, "a") {
		t.Fatal("it goes on for ever")
	}
	if len(f.rep.Contested) != 1 || f.rep.Contested[0].Ref != ref("a") {
		t.Errorf("said: %+v", f.rep.Contested)
	}
	if why := f.backedOff("a"); why == "" || why != f.rep.Contested[0].Note {
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
	if f.backedOff("a") != "" || f.contested(Drifted, "a") {
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
	if why := f.backoffs.active(me.String(), ref("a").ID(), "another content", f.clock.Now()); why != "" {
		t.Errorf("what the repository says now is sent at once, not held: %s", why)
	}
	for range maxCorrections + 1 {
		f.contested(Drifted, "b")
	}
	f.Forgive(me)
	if f.backedOff("b") != "" {
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
	f.backoffs.record(me.String(), it.ID, backoff{start: noon, retryAt: until, want: it.Want, err: errors.New("no")})
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
