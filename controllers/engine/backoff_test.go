package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// backoffMessage returns why an object with this content is backed off; empty when it is not.
func backoffMessage(s *backoffs, owner, id, contentHash string, now time.Time) string {
	if b := s.active(owner, now)[id]; b.ContentHash == contentHash {
		return b.Message
	}
	return ""
}

func TestBackoffIsActiveForFailedContentUntilRetry(t *testing.T) {
	s := &backoffs{}
	s.record("me", "a", backoff{retryAt: noon.Add(time.Minute), contentHash: "v1", err: errors.New("no")})
	for name, tc := range map[string]struct {
		owner, id, want string
		at              time.Duration
		active          bool
	}{
		"the content that failed": {"me", "a", "v1", 0, true},
		"just before the retry":   {"me", "a", "v1", time.Minute - 1, true},
		"expired":                 {"me", "a", "v1", time.Minute, false},
		"other content":           {"me", "a", "v2", 0, false},
		"to be deleted":           {"me", "a", "", 0, false},
		"another object":          {"me", "b", "v1", 0, false},
		"another owner's object":  {"you", "a", "v1", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := backoffMessage(s, tc.owner, tc.id, tc.want, noon.Add(tc.at)); (got == "no") != tc.active {
				t.Errorf("got %q", got)
			}
			if backoffMessage(s, "me", "a", "v1", noon) == "" {
				t.Error("reading cleared the back-off")
			}
		})
	}
}

func TestRecreationsOfSameContentWait(t *testing.T) {
	const interval = time.Hour
	type step struct {
		after           time.Duration // since the step before
		deleted, create string        // content hashes
	}
	loop := func(n int, after time.Duration, content string) (out []step) {
		for range n {
			out = append(out, step{after, content, content})
		}
		return out
	}
	for name, tc := range map[string]struct {
		steps []step
		// want is the time until the next creation, after the last step.
		want time.Duration
	}{
		"four times":                {loop(4, time.Minute, "v1"), 0},
		"five times in ten minutes": {loop(5, time.Minute, "v1"), interval},
		"five times, slowly":        {loop(5, 3*time.Minute, "v1"), 0},
		"goes on at the interval": {append(loop(5, time.Minute, "v1"), step{time.Minute, "v1", "v1"}),
			interval},
		"was left alone in between": {append(loop(5, time.Minute, "v1"), step{11 * time.Minute, "v1", "v1"}), 0},
		"content alternates": {append(append(loop(3, time.Minute, "v1"), step{time.Minute, "v1", "v2"}),
			loop(3, time.Minute, "v2")...), 0},
		"deleted by us once, then created": {loop(1, time.Minute, "v1"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, now, last := &recreations{}, noon, ""
			for _, s := range tc.steps {
				now = now.Add(s.after)
				r.recordDeletion("me", "a", s.deleted, now)
				r.recordCreation("me", "a", s.create, now)
				last = s.create
			}
			got := time.Duration(0)
			if next := r.nextCreation("me", "a", last, interval); !next.IsZero() {
				got = next.Sub(now)
			}
			if got != tc.want {
				t.Errorf("the next creation is possible after %s, want %s", got, tc.want)
			}
			if next := r.nextCreation("me", "a", "other content", interval); !next.IsZero() {
				t.Errorf("other content waits until %s", next)
			}
		})
	}
}

// Objects that were deleted once do not stay in memory.
func TestRecreationsForgetOldDeletions(t *testing.T) {
	r := &recreations{}
	for i := range 100 {
		r.recordDeletion("me", string(rune('a'+i)), "v1", noon)
	}
	r.recordDeletion("me", "z", "v1", noon.Add(recreationWindow))
	r.prune("me", noon.Add(recreationWindow))
	if n := len(r.all("me")); n != 1 {
		t.Errorf("%d objects are kept", n)
	}
}

func TestPruneDropsBackoffsThatNoLongerApply(t *testing.T) {
	s := &backoffs{}
	for id, b := range map[string]backoff{
		"same":    {retryAt: noon.Add(time.Hour), contentHash: "v1"},
		"changed": {retryAt: noon.Add(time.Hour), contentHash: "v1"},
		"leaves":  {retryAt: noon.Add(time.Hour), contentHash: "v1"},
		"leaving": {retryAt: noon.Add(time.Hour)},
		"expired": {retryAt: noon, contentHash: "v1"},
	} {
		b.err = errors.New(id)
		s.record("me", id, b)
	}
	s.record("you", "changed", backoff{retryAt: noon.Add(time.Hour), contentHash: "v1", err: errors.New("yours")})
	for id, hash := range map[string]string{"namespace": "", "again": "v2"} {
		s.record("me", id, backoff{retryAt: noon.Add(time.Hour), contentHash: hash, err: errors.New(id)})
	}
	s.prune("me", map[string][2]string{"same": {"v1"}, "changed": {"v2"}, "expired": {"v1"}, "namespace": {},
		"again": {"v1", "v2"}}, noon)
	if _, errs := s.nextRetry("me", noon.Add(-time.Second), nil); errors.Join(errs...).Error() !=
		"again\nleaving\nnamespace\nsame" {
		t.Errorf("kept %v", errs)
	}
	if backoffMessage(s, "me", "changed", "v1", noon) != "" {
		t.Error("a back-off that new content ended came back with the old content")
	}
	if backoffMessage(s, "you", "changed", "v1", noon) == "" {
		t.Error("the back-off of another owner is gone")
	}
}

func TestNextRetry(t *testing.T) {
	s := &backoffs{}
	if at, errs := s.nextRetry("me", noon, nil); !at.IsZero() || errs != nil {
		t.Errorf("%s, %v", at, errs)
	}
	for id, after := range map[string]time.Duration{"c": 3 * time.Minute, "a": 2 * time.Minute, "b": time.Minute,
		"expired": 0} {
		s.record("me", id, backoff{retryAt: noon.Add(after), err: errors.New(id)})
	}
	s.record("you", "a", backoff{retryAt: noon.Add(time.Second), err: errors.New("yours")})
	at, errs := s.nextRetry("me", noon, nil)
	if !at.Equal(noon.Add(time.Minute)) {
		t.Errorf("the first ends at %s", at)
	}
	if got := errors.Join(errs...).Error(); got != "a\nb\nc" {
		t.Errorf("errors %q: want them in the order of their objects", got)
	}
	s.reset("me", "b")
	if at, _ := s.nextRetry("me", noon, nil); !at.Equal(noon.Add(2 * time.Minute)) {
		t.Errorf("the next ends at %s", at)
	}
	s.resetAll("me")
	if at, errs := s.nextRetry("me", noon, nil); !at.IsZero() || errs != nil {
		t.Errorf("%s, %v", at, errs)
	}
	if _, errs := s.nextRetry("you", noon, nil); len(errs) != 1 {
		t.Error("the back-offs of another owner are gone")
	}
}

// RemovalProgress reads the inventory of an install, whose back-offs stay as they are.
func TestRemovalProgressKeepsBackoffs(t *testing.T) {
	f := newContestTest(t)
	index, err := live.New(&rest.Config{Host: "127.0.0.1:1"}, live.Options{OwnerID: "me"})
	if err != nil {
		t.Fatal(err)
	}
	id := ref("a").ID()
	f.backoffs.record(me.String(), id,
		backoff{start: noon, retryAt: noon.Add(time.Hour), contentHash: "want", err: errors.New("no")})
	view := &ReadOnlyOwner{OwnerKey: me, Entries: plan.NewInventory(nil, nil), Policy: plan.DefaultPolicies}
	view.Entries.Put(entry("a", appsv1.EntryApplied))
	view.Policy.RemovalRequest = func(*appsv1.InventoryEntry) *plan.RemovalRequest { return &plan.RemovalRequest{} }
	if remarks := f.RemovalProgress(&Target{Index: index}, view); len(remarks) != 1 {
		t.Fatalf("the progress has %d objects", len(remarks))
	}
	if f.backedOff("a") == "" {
		t.Error("RemovalProgress cleared the back-off")
	}
}

func TestOwnerMapResetsOneObject(t *testing.T) {
	var d ownerMap[types.UID]
	d.record("me", "a", "uid")
	d.record("you", "a", "other")
	if d.all("me")["a"] != "uid" || d.all("me")["b"] != "" || d.all("nobody")["a"] != "" {
		t.Error("not as recorded")
	}
	d.reset("me", "a")
	d.reset("nobody", "a")
	if d.all("me")["a"] != "" || d.all("you")["a"] != "other" {
		t.Error("reset of one object")
	}
}

// contestTest is an engine and an owner whose objects another writer keeps changing.
type contestTest struct {
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	*Engine
	owner Owner
	rep   Report
}

func newContestTest(t *testing.T) *contestTest {
	c := clocktesting.NewFakePassiveClock(noon)
	return &contestTest{t: t, clock: c, Engine: New(Options{Clock: c}), owner: keyOnly{}}
}

// keyOnly is an owner that has only a key.
type keyOnly struct{ Owner }

func (keyOnly) Key() plan.OwnerKey { return me }

// contested plans corrections now. It returns true if there are too many; else it records them.
func (f *contestTest) contested(reason plan.Reason, names ...string) bool {
	var p plan.Plan
	for _, name := range names {
		it := item("c", name)
		l := liveObject(name, func(o *live.Object) { o.OtherManager = "kubectl" })
		p.Actions = append(p.Actions,
			plan.Action{Verb: plan.VerbUpdate, Reason: reason, Item: &it, Entry: entry(name, appsv1.EntryApplied),
				Live: &l})
	}
	a := f.newExecutor(Pass{Owner: f.owner,
		Retry: RetryPolicy{Interval: time.Minute, ContestedInterval: 10 * time.Minute}})
	a.report = &f.rep
	if a.backOffContested(f.t.Context(), &p) {
		return true
	}
	for i := range p.Actions {
		if isCorrection(&p.Actions[i]) {
			f.corrections.add(me.String(), p.Actions[i].Entry.ID, f.clock.Now())
		}
	}
	return false
}

func (f *contestTest) advance(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

func (f *contestTest) backedOff(name string) string {
	return backoffMessage(&f.backoffs, me.String(), ref(name).ID(), "want", f.clock.Now())
}

func TestCorrectionsStopAfterMaxCorrections(t *testing.T) {
	f := newContestTest(t)
	for i := range maxCorrections {
		if f.contested(plan.ReasonDrifted, "a") {
			t.Fatalf("correction %d is contested", i+1)
		}
		f.advance(time.Second)
	}
	if len(f.rep.Contested) > 0 || f.backedOff("a") != "" {
		t.Error("reported before it is contested")
	}
	if !f.contested(plan.ReasonDrifted, "a") {
		t.Fatal("corrected more often than maxCorrections")
	}
	if len(f.rep.Contested) != 1 || f.rep.Contested[0].Ref != ref("a") {
		t.Errorf("reported %+v", f.rep.Contested)
	}
	if reason := f.backedOff("a"); reason == "" || reason != f.rep.Contested[0].Message {
		t.Errorf("backed off for %q, reported %q", reason, f.rep.Contested[0].Message)
	}
	const note = "ConfigMap ns/a keeps being changed by kubectl: corrected 3 times in a minute, left alone until " +
		"12:10:03; to accept these changes, list the fields in spec.drift.ignore"
	if got := f.rep.Contested[0].Message; got != note {
		t.Errorf("reported %q", got)
	}
	if f.contested(plan.ReasonDrifted, "b") {
		t.Error("the corrections of another object are counted")
	}
	f.advance(10 * time.Minute)
	if f.backedOff("a") != "" || f.contested(plan.ReasonDrifted, "a") {
		t.Error("still contested at the time of the next correction")
	}
}

func TestContestedErrorNamesFields(t *testing.T) {
	deployment := stacks.Ref{Group: "apps", Kind: "Deployment", Namespace: "web", Name: "frontend"}
	var many []live.LostField
	for i := range maxContestedFields + 2 {
		many = append(many, live.LostField{Path: fmt.Sprintf("/data/%d", i), Managers: []string{"a"}})
	}
	for _, tc := range []struct {
		err  ContestedError
		want string
	}{
		{ContestedError{Ref: deployment, RetryAt: noon, Fields: []live.LostField{
			{Path: "/spec/template/spec/containers/[name=main]/image", Managers: []string{"keel", "kubectl"}},
			{Path: "/metadata/labels/team"}}},
			"Deployment web/frontend keeps being changed: /spec/template/spec/containers/[name=main]/image by keel " +
				"and kubectl, /metadata/labels/team is removed; corrected 3 times in a minute, left alone until " +
				`12:00:00; to accept these changes, add to spec.drift.ignore: {"target":{"group":"apps","kind":"Deployment",` +
				`"namespace":"web","name":"frontend"},"paths":["/spec/template/spec/containers/[name=main]/image",` +
				`"/metadata/labels/team"]}`},
		{ContestedError{Ref: ref("a"), RetryAt: noon, Fields: many},
			"ConfigMap ns/a keeps being changed: /data/0 by a, /data/1 by a, /data/2 by a, /data/3 by a, /data/4 by " +
				"a, and 2 more; corrected 3 times in a minute, left alone until 12:00:00; to accept these changes, " +
				`add to spec.drift.ignore: {"target":{"kind":"ConfigMap","namespace":"ns","name":"a"},"paths":[` +
				`"/data/0","/data/1","/data/2","/data/3","/data/4"]}`},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

func TestCorrectionsAreCountedPerMinute(t *testing.T) {
	f := newContestTest(t)
	for range 20 { // one change in 20 seconds is below the limit
		if f.contested(plan.ReasonDrifted, "a") {
			t.Fatal("contested after three corrections in a minute")
		}
		f.advance(20 * time.Second)
	}
	f.advance(-time.Second)
	f.contested(plan.ReasonDrifted, "a")
	if !f.contested(plan.ReasonDrifted, "a") {
		t.Error("not contested after five corrections in a minute")
	}
}

func TestOnlyCorrectionsAreCounted(t *testing.T) {
	f := newContestTest(t)
	for range 10 {
		for _, r := range []plan.Reason{plan.ReasonNew, plan.ReasonChanged, plan.ReasonReclaimed, plan.ReasonFinished,
			plan.ReasonMoved} {
			if f.contested(r, "a") {
				t.Fatalf("an update with reason %s is counted", r)
			}
		}
	}
	for range maxCorrections {
		f.contested(plan.ReasonMissing, "a") // another client deletes it
	}
	if !f.contested(plan.ReasonDrifted, "a") {
		t.Error("corrections of deletions are not counted")
	}
}

// A retry that a user requests is made, and new content is applied at once.
func TestResetBackoff(t *testing.T) {
	f := newContestTest(t)
	for range maxCorrections + 1 {
		f.contested(plan.ReasonDrifted, "a")
	}
	if reason := backoffMessage(&f.backoffs, me.String(), ref("a").ID(), "another content",
		f.clock.Now()); reason != "" {
		t.Errorf("new content is backed off: %s", reason)
	}
	for range maxCorrections + 1 {
		f.contested(plan.ReasonDrifted, "b")
	}
	f.ResetBackoff(me)
	if f.backedOff("b") != "" {
		t.Error("still backed off")
	}
	if f.contested(plan.ReasonDrifted, "b") {
		t.Error("the requested retry is contested")
	}
}

// emptyOwner is an owner without objects.
type emptyOwner struct{ keyOnly }

func (emptyOwner) Inventory() *plan.Inventory { return plan.NewInventory(nil, nil) }
func (emptyOwner) Policies() plan.Policies    { return plan.DefaultPolicies }

// A back-off that the plan respected may have expired when the pass ends. It needs a retry
// nevertheless.
func TestBackoffThatEndsDuringAPassIsRetried(t *testing.T) {
	f := newContestTest(t)
	index, err := live.New(&rest.Config{Host: "127.0.0.1:1"}, live.Options{OwnerID: "me"})
	if err != nil {
		t.Fatal(err)
	}
	it := item("c", "a")
	until := noon.Add(time.Second)
	f.backoffs.record(me.String(), it.ID,
		backoff{start: noon, retryAt: until, contentHash: it.ContentHash, err: errors.New("no")})
	rep, err := f.newExecutor(Pass{Owner: emptyOwner{},
		Target: &Target{Index: index}}).run(t.Context(), func(in *plan.Snapshot) plan.Plan {
		if in.Backoffs[it.ID].Message == "" {
			t.Error("not backed off during the plan")
		}
		f.advance(time.Minute)
		return plan.Plan{}
	})
	if err != nil || !rep.RetryAt.Equal(until) || len(rep.Errors) != 1 {
		t.Errorf("retry at %s, errors %v (%v)", rep.RetryAt, rep.Errors, err)
	}
}
