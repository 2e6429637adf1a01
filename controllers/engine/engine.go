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

// WriteKind is the kind of a write.
type WriteKind string

// Kinds of writes, in the order in which they occur during the life of an owner.
const (
	WriteIntent  WriteKind = "intent"
	WriteCreate  WriteKind = "create"
	WriteUpdate  WriteKind = "update"
	WriteDelete  WriteKind = "delete"
	WriteRelease WriteKind = "release"
)

// WriteHook is called before and after each write of the engine. An error ends the pass at once, as
// a crash would: tests use it to simulate a crash at every write.
type WriteHook func(ctx context.Context, kind WriteKind, after bool) error

// Engine reconciles owners. Its state between passes is only a cache: after a restart, the next
// passes rebuild it.
type Engine struct {
	clock       clock.PassiveClock
	writeHook   WriteHook
	concurrency int
	backoffs    *backoffs
	corrections *corrections
	deletions   *pendingDeletions
	terminating *terminatingNamespaces
}

// Options configures an Engine. The zero value is for production.
type Options struct {
	Clock     clock.PassiveClock
	WriteHook WriteHook
	// Concurrency is the number of objects of one kind that are sent at the same time; 8 when 0.
	Concurrency int
}

// New returns an Engine.
func New(o Options) *Engine {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.WriteHook == nil {
		o.WriteHook = func(context.Context, WriteKind, bool) error { return nil }
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 8
	}
	return &Engine{clock: o.Clock, writeHook: o.WriteHook, concurrency: o.Concurrency,
		backoffs: newBackoffs(), corrections: newCorrections(), deletions: newPendingDeletions(), terminating: newTerminatingNamespaces()}
}

// Change is a change that a pass made to one object.
type Change struct {
	Verb   Verb
	Reason Reason
	Ref    stacks.Ref
	// Message is for users, such as the manager that changed the object, or that had it before.
	Message string
}

// Report is the result of a pass: the changes that it made, and what is left to do.
type Report struct {
	// Plan is the last plan of the pass: what is still to do.
	Plan Plan
	// Changes are the changes that the pass made.
	Changes []Change
	// Contested are objects that another writer keeps changing. An object is reported once, when
	// its corrections stop.
	Contested []Change
	// RetryAt is the time of the first retry; zero when nothing is to be retried.
	RetryAt time.Time
	// Errors are the errors of the objects that are backed off until their retry or a change.
	Errors []error
	// SyncError is not nil while the index may not know all objects of the owner.
	SyncError error
}

// maxRounds limits the rounds of one pass. A component has few steps, and each round executes all
// actions that are possible, so a pass needs far fewer.
const maxRounds = 100

// Reconcile executes all actions that are possible now to reach the desired state of the
// components. Errors of single objects are in the report; a returned error ended the pass.
func (e *Engine) Reconcile(ctx context.Context, t *Target, c *Client, o Owner, components []Component, retry RetryPolicy) (*Report, error) {
	desired := itemIDs(components)
	if err := e.dropUnserved(ctx, t, o, desired); err != nil {
		return nil, err
	}
	if err := e.adoptStrays(ctx, t, c, o, desired); err != nil {
		return nil, err
	}
	e.setOwnerKinds(ctx, t, o, components, desired)
	e.backoffs.prune(o.Key().String(), contentHashes(components), e.clock.Now())
	rep, err := e.runRounds(ctx, t, c, o, retry, desired, func(in *Snapshot) Plan {
		in.Components = components
		return PlanReconcile(in)
	})
	if err == nil && rep.Plan.Settled {
		o.Inventory().markSettled(desired)
	}
	return rep, err
}

// Teardown executes all actions that are possible now to remove all objects of the owner. It needs
// only the inventory. It is complete when the inventory is empty.
func (e *Engine) Teardown(ctx context.Context, t *Target, c *Client, o Owner, retry RetryPolicy) (*Report, error) {
	if err := e.dropUnserved(ctx, t, o, nil); err != nil {
		return nil, err
	}
	if err := e.adoptStrays(ctx, t, c, o, nil); err != nil {
		return nil, err
	}
	e.setOwnerKinds(ctx, t, o, nil, nil)
	e.backoffs.prune(o.Key().String(), nil, e.clock.Now())
	rep, err := e.runRounds(ctx, t, c, o, retry, nil, PlanTeardown)
	if err == nil && o.Inventory().Len() == 0 {
		t.Index.SetOwnerKinds(o.Key().String(), nil)
		e.forgetOwner(o.Key().String())
	}
	return rep, err
}

// Forget drops the in-memory state of an owner. The target is nil for an owner that never had one.
func (e *Engine) Forget(t *Target, key OwnerKey) {
	if t != nil {
		t.Index.SetOwnerKinds(key.String(), nil)
		t.Index.SetAwaited(key.String(), nil)
	}
	e.forgetOwner(key.String())
}

func (e *Engine) forgetOwner(owner string) {
	e.backoffs.resetAll(owner)
	e.corrections.reset(owner)
	e.deletions.resetAll(owner)
	e.terminating.resetAll(owner)
}

// runRounds plans and executes until no action is possible now. retained are the ids of entries
// that stay: an object must not be deleted if that would delete one of them, too.
func (e *Engine) runRounds(ctx context.Context, t *Target, c *Client, o Owner, retry RetryPolicy, retained map[string]bool, plan func(*Snapshot) Plan) (*Report, error) {
	rep := &Report{}
	a := &executor{engine: e, target: t, client: c, owner: o, retry: retry, report: rep, replanned: map[string]bool{}, retained: retained}
	var in *Snapshot
	for range maxRounds {
		in = e.snapshot(t, o)
		rep.Plan = plan(in)
		if e.backOffContested(o, retry, &rep.Plan, rep) {
			rep.Plan = plan(in)
		}
		if rep.Plan.Idle() {
			if e.awaitReleases(t, o, &rep.Plan) {
				continue
			}
			break
		}
		if err := a.executeRound(ctx, &rep.Plan); err != nil {
			return rep, err
		}
	}
	e.resetUnservedBackoffs(o.Key(), &rep.Plan)
	// At the time of the plan: a back-off that the plan respected may have expired since.
	rep.RetryAt, rep.Errors = e.backoffs.nextRetry(o.Key().String(), in.now)
	if rep.SyncError = syncError(ctx, t, o); rep.SyncError == nil {
		rep.SyncError = planSyncError(&rep.Plan, o.Inventory())
	}
	if settleRetry := e.clock.Now().Add(settleInterval); waitsForKind(&rep.Plan) && t.Discovery.Settling() && (rep.RetryAt.IsZero() || settleRetry.Before(rep.RetryAt)) {
		rep.RetryAt = settleRetry // discovery lags behind the event that announced the kind
	}
	return rep, nil
}

func (e *Engine) snapshot(t *Target, o Owner) *Snapshot {
	owner, now := o.Key().String(), e.clock.Now()
	return &Snapshot{
		Owner:                o.Key(),
		Inventory:            o.Inventory(),
		Policies:             o.Policies(),
		Live:                 func(r stacks.Ref) (live.Object, bool) { return t.Index.Get(r) },
		Succeeded:            t.Index.Succeeded,
		SyncError:            t.Index.Synced,
		BackoffReason:        func(it *Item) string { return e.backoffs.active(owner, it.ID, it.ContentHash, now) },
		PendingDeletion:      func(id string) types.UID { return e.deletions.uid(owner, id) },
		RemovalBackoffReason: func(id string) string { return e.backoffs.active(owner, id, "", now) },
		now:                  now,
	}
}

// RetryPolicy configures the delays before retries.
type RetryPolicy struct {
	// Interval is the delay after a failed write. Transient errors are retried sooner.
	Interval time.Duration
	// ContestedInterval is the delay before the next correction of an object that another writer
	// keeps changing; at least a minute.
	ContestedInterval time.Duration
}

// DefaultPolicies are the policies of an owner that sets none.
var DefaultPolicies = Policies{Drift: appsv1.DriftCorrect, Adopt: appsv1.AdoptUnowned, Prune: true,
	MaxDeletes: appsv1.DefaultMaxDeletes, MaxDeletePercent: appsv1.DefaultMaxDeletePercent, ProtectKinds: []string{"PersistentVolumeClaim"}}

// ResetBackoff drops the back-offs of an owner, and the counted corrections, which would cause new
// back-offs at once. It is for a user who requests an immediate retry.
func (e *Engine) ResetBackoff(key OwnerKey) {
	e.backoffs.resetAll(key.String())
	e.corrections.reset(key.String())
}

// resetUnservedBackoffs drops the back-offs of objects whose kind is no longer served: the cause of
// the failure is gone with the kind, and the retry is triggered by the event of the kind's return.
func (e *Engine) resetUnservedBackoffs(key OwnerKey, p *Plan) {
	for i := range p.Waits {
		if w := &p.Waits[i]; w.Reason == ReasonNotServed && w.Item != nil {
			e.backoffs.reset(key.String(), w.Item.ID)
		}
	}
}

func waitsForKind(p *Plan) bool {
	for i := range p.Waits {
		if p.Waits[i].Reason == ReasonNotServed {
			return true
		}
	}
	return false
}
