package engine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// WriteKind is a kind of write boundary.
type WriteKind string

// Write boundaries, in the order in which an install meets them.
const (
	WriteIntent  WriteKind = "intent"
	WriteCreate  WriteKind = "create"
	WriteUpdate  WriteKind = "update"
	WriteDelete  WriteKind = "delete"
	WriteRelease WriteKind = "release"
)

// Boundary is called before and after each write of the engine. An error ends
// the pass at once, as a crash would: tests use it to stop at every boundary.
type Boundary func(ctx context.Context, kind WriteKind, after bool) error

// Engine reconciles owners. What it remembers between passes may be lost: the next pass finds
// it out again.
type Engine struct {
	clock       clock.PassiveClock
	boundary    Boundary
	concurrency int
	backoffs    *backoffs
	corrections *corrections
	deletions   *pendingDeletions
	terminating *terminatingNamespaces
}

// Options of an Engine. The zero value is for production.
type Options struct {
	Clock    clock.PassiveClock
	Boundary Boundary
	// Concurrency is how many objects of one kind are sent at a time; 8 when 0.
	Concurrency int
}

// New returns an Engine.
func New(o Options) *Engine {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Boundary == nil {
		o.Boundary = func(context.Context, WriteKind, bool) error { return nil }
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 8
	}
	return &Engine{clock: o.Clock, boundary: o.Boundary, concurrency: o.Concurrency,
		backoffs: newBackoffs(), corrections: newCorrections(), deletions: newPendingDeletions(), terminating: newTerminatingNamespaces()}
}

// Change is one thing that a pass did.
type Change struct {
	Verb   Verb
	Reason Reason
	Ref    stacks.Ref
	// Note for people: who drifted it, who owned it.
	Note string
}

// Report is what a pass did and what is left.
type Report struct {
	// Plan as it stands after the pass.
	Plan Plan
	// Changes that were made.
	Changes []Change
	// Contested are objects that another writer keeps changing; said once when it starts.
	Contested []Change
	// RetryAt is when the first thing that is waited out may be tried again; zero: never.
	RetryAt time.Time
	// Errors of the objects that are left alone until RetryAt or a change.
	Errors []error
	// Unsynced is set while the index does not know everything that the owner has.
	Unsynced error
}

// maxRounds bounds one pass: a component has few steps, and each round does
// everything that can be done.
const maxRounds = 100

// Reconcile takes every step that is possible now towards the components.
// Errors of single objects are in the report; the error returned ends the pass.
func (e *Engine) Reconcile(ctx context.Context, t *Target, c *Client, o Owner, components []Component, retry Retry) (*Report, error) {
	wanted := ids(components)
	if err := e.dropUnserved(ctx, t, o, wanted); err != nil {
		return nil, err
	}
	if err := e.takeUp(ctx, t, c, o, wanted); err != nil {
		return nil, err
	}
	e.use(ctx, t, o, components, wanted)
	e.backoffs.prune(o.Key().String(), wants(components), e.clock.Now())
	rep, err := e.rounds(ctx, t, c, o, retry, wanted, func(in *Input) Plan {
		in.Components = components
		return MakePlan(in)
	})
	if err == nil && rep.Plan.Settled {
		o.Inventory().settle(wanted)
	}
	return rep, err
}

// Teardown takes every step that is possible now towards owning nothing. It
// reads only the inventory. It is finished when the inventory is empty.
func (e *Engine) Teardown(ctx context.Context, t *Target, c *Client, o Owner, retry Retry) (*Report, error) {
	if err := e.dropUnserved(ctx, t, o, nil); err != nil {
		return nil, err
	}
	if err := e.takeUp(ctx, t, c, o, nil); err != nil {
		return nil, err
	}
	e.use(ctx, t, o, nil, nil)
	e.backoffs.prune(o.Key().String(), nil, e.clock.Now())
	rep, err := e.rounds(ctx, t, c, o, retry, nil, PlanTeardown)
	if err == nil && o.Inventory().Len() == 0 {
		t.Index.Use(o.Key().String(), nil)
		e.forget(o.Key().String())
	}
	return rep, err
}

// Forget drops what is remembered of an owner. The target is nil for one that never had any.
func (e *Engine) Forget(t *Target, key OwnerKey) {
	if t != nil {
		t.Index.Use(key.String(), nil)
		t.Index.Await(key.String(), nil)
	}
	e.forget(key.String())
}

func (e *Engine) forget(owner string) {
	e.backoffs.resetAll(owner)
	e.corrections.reset(owner)
	e.deletions.resetAll(owner)
	e.terminating.resetAll(owner)
}

// rounds plans and acts until nothing can be done now. What stays is not to go
// with something else.
func (e *Engine) rounds(ctx context.Context, t *Target, c *Client, o Owner, retry Retry, stays map[string]bool, plan func(*Input) Plan) (*Report, error) {
	rep := &Report{}
	a := &actor{engine: e, target: t, client: c, owner: o, retry: retry, report: rep, sent: map[string]bool{}, stays: stays}
	var in *Input
	for range maxRounds {
		in = e.input(t, o)
		rep.Plan = plan(in)
		if e.contest(o, retry, &rep.Plan, rep) {
			rep.Plan = plan(in)
		}
		if rep.Plan.Idle() {
			if e.await(t, o, &rep.Plan) {
				continue
			}
			break
		}
		if err := a.round(ctx, &rep.Plan); err != nil {
			return rep, err
		}
	}
	e.release(o.Key(), &rep.Plan)
	// As the plan saw it: of what it left alone, something may be due by now.
	rep.RetryAt, rep.Errors = e.backoffs.nextRetry(o.Key().String(), in.now)
	if rep.Unsynced = unsynced(ctx, t, o); rep.Unsynced == nil {
		rep.Unsynced = wasUnsynced(&rep.Plan, o.Inventory())
	}
	if soon := e.clock.Now().Add(settlingStep); waitsForKind(&rep.Plan) && t.Discovery.Settling() && (rep.RetryAt.IsZero() || soon.Before(rep.RetryAt)) {
		rep.RetryAt = soon // discovery lags behind the event that announced the kind
	}
	return rep, nil
}

func (e *Engine) input(t *Target, o Owner) *Input {
	owner, now := o.Key().String(), e.clock.Now()
	return &Input{
		Owner:     o.Key(),
		Inventory: o.Inventory(),
		Policies:  o.Policies(),
		Live:      func(r stacks.Ref) (live.Object, bool) { return t.Index.Get(r) },
		Succeeded: t.Index.Succeeded,
		Unsynced:  t.Index.Synced,
		Held:      func(it *Item) string { return e.backoffs.active(owner, it.ID, it.Want, now) },
		Deleted:   func(id string) types.UID { return e.deletions.uid(owner, id) },
		HeldBack:  func(id string) string { return e.backoffs.active(owner, id, "", now) },
		now:       now,
	}
}

// Retry says how long what failed is waited out.
type Retry struct {
	// Interval after a failed attempt.
	Interval time.Duration
	// Contested is how long an object is left alone that another writer keeps changing.
	Contested time.Duration
}

// DefaultPolicies are those of an owner that says nothing.
var DefaultPolicies = Policies{Drift: appsv1.DriftCorrect, Adopt: appsv1.AdoptUnowned, Prune: true,
	MaxDeletes: appsv1.DefaultMaxDeletes, MaxDeletePercent: appsv1.DefaultMaxDeletePercent, Protect: []string{"PersistentVolumeClaim"}}

// Forgive drops the back-offs of an owner, and the corrections that would cause new ones at
// once: a person asked for another try.
func (e *Engine) Forgive(key OwnerKey) {
	e.backoffs.resetAll(key.String())
	e.corrections.reset(key.String())
}

// release drops the back-offs of objects whose kind went away: what they failed for
// went with it, and the kind's next event is what to wait for.
func (e *Engine) release(key OwnerKey, p *Plan) {
	for i := range p.Waits {
		if w := &p.Waits[i]; w.Reason == NotServed && w.Item != nil {
			e.backoffs.reset(key.String(), w.Item.ID)
		}
	}
}

func waitsForKind(p *Plan) bool {
	for i := range p.Waits {
		if p.Waits[i].Reason == NotServed {
			return true
		}
	}
	return false
}
