package engine

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/controllers/engine/plan"
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
	backoffs    backoffs
	corrections corrections
	recreations recreations
	// deletions has the uids of objects whose deletion the API server accepted.
	deletions ownerMap[types.UID]
	// terminating has the namespaces that were observed to be terminating.
	terminating ownerMap[bool]
	// creates has the state of the create requests of uncreated entries.
	creates ownerMap[createState]
	// done has the times at which hooks that are deleted some time later were first seen as done.
	done ownerMap[time.Time]
	// results has the times at which results of Jobs are read again that could not be read.
	results ownerMap[time.Time]
	// compared has the objects that were compared before they are taken over.
	compared ownerMap[comparison]
	// definitions has the CustomResourceDefinitions of other owners that an owner uses.
	definitions ownerMap[definitionUse]
	// existed has the create-only objects that existed before, and until when that is assumed.
	existed ownerMap[time.Time]
	// refused has the contributions that were refused.
	refused        ownerMap[refusedContribution]
	requestTimeout time.Duration
}

// Options configures an Engine. The zero value is for production.
type Options struct {
	Clock     clock.PassiveClock
	WriteHook WriteHook
	// Concurrency is the number of objects of one kind that are sent at the same time; 8 when 0.
	Concurrency int
	// RequestTimeout is the time after which an API server certainly handles no request any more;
	// 60 s when 0, which is the default of kube-apiserver's --request-timeout.
	RequestTimeout time.Duration
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
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = time.Minute
	}
	return &Engine{clock: o.Clock, writeHook: o.WriteHook, concurrency: o.Concurrency, requestTimeout: o.RequestTimeout}
}

// Change is a change that a pass made to one object.
type Change struct {
	Verb   plan.Verb
	Reason plan.Reason
	Ref    stacks.Ref
	// Message is for users, such as the manager that changed the object, or that had it before.
	Message string
}

// Report is the result of a pass: the changes that it made, and what is left to do.
type Report struct {
	// Plan is the last plan of the pass: what is still to do.
	Plan plan.Plan
	// Changes are the changes that the pass made.
	Changes []Change
	// Contested are objects that another writer keeps changing. An object is reported once, when
	// its corrections stop.
	Contested []Change
	// DeleteAt is the time at which a hook has to be deleted; zero when there is none.
	DeleteAt time.Time
	// RetryAt is the time of the first retry; zero when nothing is to be retried.
	RetryAt time.Time
	// Errors are the errors of the objects that are backed off until their retry or a change.
	Errors []error
	// Warnings are for users. They do not prevent anything.
	Warnings []string
	// SyncError is not nil while the index may not know all objects of the owner.
	SyncError error
}

// maxRounds limits the rounds of one pass. A component has few steps, and each round executes all
// actions that are possible, so a pass needs far fewer.
const maxRounds = 100

// Pass is one pass over the objects of an owner: whose objects, where, with which permissions, and
// when failed writes are retried.
type Pass struct {
	Owner  Owner
	Target *Target
	// Client sends the requests for the objects. It is nil where only the index is read.
	Client *Client
	Retry  RetryPolicy
	// RemovalHooks are the hooks that charts run when their component is removed.
	RemovalHooks []plan.RemovalHooks
	// Unsaved is true if the owner has to be persisted before the first request.
	Unsaved bool
	// MayReceive returns false if another owner that desires an object is not allowed to change it:
	// the object is not handed over to it. Until the end of the pass, Policies.HandoverTo must not
	// return that owner again. A nil function allows all.
	MayReceive func(ctx context.Context, to plan.OwnerKey, r schema.GroupVersionResource, ref stacks.Ref) (bool, error)
	// ReportDifferent is called before existing objects that differ from the desired ones are taken
	// over.
	ReportDifferent func(*DifferentError)
	// IsActive reports whether the owner that an object was handed over to exists and is not being
	// deleted. Otherwise nobody would remove the object, and it is taken back; as with MayReceive,
	// it is not offered to that owner again. A nil function is true for all.
	IsActive func(ctx context.Context, to plan.OwnerKey, ref stacks.Ref) (bool, error)
}

// Reconcile executes all actions that are possible now to reach the desired state of the
// components. Errors of single objects are in the report; a returned error ended the pass.
func (e *Engine) Reconcile(ctx context.Context, p Pass, components []plan.Component) (*Report, error) {
	a := e.newExecutor(p)
	a.components, a.desired = components, itemIDs(components)
	a.retained = a.desired
	if err := a.start(ctx); err != nil {
		return nil, err
	}
	a.updateDefinitions()
	a.rememberExisting()
	rep, err := a.run(ctx, plan.Reconcile)
	if err == nil && rep.Plan.Settled {
		p.Owner.Inventory().MarkSettled(a.desired)
	}
	return rep, err
}

// Teardown executes all actions that are possible now to remove all objects of the owner. It needs
// only the inventory. It is complete when the inventory is empty.
func (e *Engine) Teardown(ctx context.Context, p Pass) (*Report, error) {
	a := e.newExecutor(p)
	a.teardown = true
	if err := a.start(ctx); err != nil {
		return nil, err
	}
	rep, err := a.run(ctx, plan.Teardown)
	if err == nil && p.Owner.Inventory().Len() == 0 {
		p.Target.Index.SetOwnerKinds(a.ownerKey, nil)
		p.Target.Index.SetContributed(a.ownerKey, nil)
		e.forgetOwner(a.ownerKey)
	}
	return rep, err
}

// start brings the inventory, the index and the back-offs up to date before the first plan of a
// pass.
func (a *executor) start(ctx context.Context) error {
	if err := a.dropImpossible(ctx, a.desired); err != nil {
		return err
	}
	if err := a.adoptStrays(ctx); err != nil {
		return err
	}
	a.setOwnerKinds(ctx)
	a.forgetUncreated(ctx)
	a.engine.recreations.prune(a.ownerKey, a.engine.clock.Now())
	a.engine.backoffs.prune(a.ownerKey, contentHashes(slices.Concat(a.hookComponents, a.components)),
		a.engine.clock.Now())
	return nil
}

// Remove executes all actions that are possible now to remove the objects with a removal request.
// Other objects stay as they are. It needs only the inventory.
func (e *Engine) Remove(ctx context.Context, p Pass) (*Report, error) {
	a := e.newExecutor(p)
	a.onlyRequested = true
	policies := p.Owner.Policies()
	a.retained = plan.RetainedIDs(&policies, p.Owner.Inventory())
	if err := a.dropImpossible(ctx, a.retained); err != nil {
		return nil, err
	}
	a.setOwnerKinds(ctx)
	a.forgetUncreated(ctx)
	return a.run(ctx, plan.Removal)
}

// Forget drops the in-memory state of an owner. The target is nil for an owner that never had one.
func (e *Engine) Forget(t *Target, key plan.OwnerKey) {
	if t != nil {
		t.Index.SetOwnerKinds(key.String(), nil)
		t.Index.SetAwaited(key.String(), nil)
		t.Index.SetContributed(key.String(), nil)
	}
	e.forgetOwner(key.String())
}

func (e *Engine) forgetOwner(owner string) {
	e.backoffs.resetAll(owner)
	e.corrections.resetAll(owner)
	e.recreations.resetAll(owner)
	e.deletions.resetAll(owner)
	e.terminating.resetAll(owner)
	e.creates.resetAll(owner)
	e.done.resetAll(owner)
	e.results.resetAll(owner)
	e.compared.resetAll(owner)
	e.definitions.resetAll(owner)
	e.existed.resetAll(owner)
	e.refused.resetAll(owner)
}

// run plans and executes until no action is possible now.
func (a *executor) run(ctx context.Context, makePlan func(*plan.Snapshot) plan.Plan) (*Report, error) {
	rep := a.report
	var now time.Time
	for range maxRounds {
		var in *plan.Snapshot
		in, now = a.snapshot()
		rep.Plan = makePlan(in)
		if a.backOffContested(ctx, &rep.Plan) {
			in, now = a.snapshot()
			rep.Plan = makePlan(in)
		}
		if found, err := a.findExisting(ctx, &rep.Plan); err != nil || found {
			if err != nil {
				return rep, err
			}
			continue
		}
		if differs, err := a.compareExisting(ctx, &rep.Plan); err != nil || differs {
			if err != nil {
				return rep, err
			}
			continue
		}
		if rep.Plan.Idle() {
			if a.awaitReleases(&rep.Plan) {
				continue
			}
			break
		}
		if err := a.persist(ctx, rep.Plan.Intents); err != nil {
			return rep, err
		}
		for _, group := range groups(rep.Plan.Actions, rep.Plan.Removals, rep.Plan.Results) {
			if err := a.executeGroup(ctx, group); err != nil {
				return rep, err
			}
		}
	}
	if rep.Plan.DeleteAfter > 0 {
		rep.DeleteAt = now.Add(rep.Plan.DeleteAfter)
	}
	a.compareSchemas(ctx, rep.Plan.Shared)
	waitsForKind := a.resetUnservedBackoffs(&rep.Plan)
	// At the time of the plan: a back-off that the plan respected may have expired since.
	rep.RetryAt, rep.Errors = a.engine.backoffs.nextRetry(a.ownerKey, now, a.testIDs())
	if !a.settleAt.IsZero() && (rep.RetryAt.IsZero() || a.settleAt.Before(rep.RetryAt)) {
		rep.RetryAt = a.settleAt
	}
	if next := a.nextCollection(now); !next.IsZero() && (rep.RetryAt.IsZero() || next.Before(rep.RetryAt)) {
		rep.RetryAt = next
	}
	if rep.SyncError = a.syncError(ctx); rep.SyncError == nil {
		rep.SyncError = planSyncError(&rep.Plan, a.owner.Inventory())
	}
	settleRetry := a.engine.clock.Now().Add(settleInterval)
	if waitsForKind && a.target.Discovery.Settling() && (rep.RetryAt.IsZero() || settleRetry.Before(rep.RetryAt)) {
		rep.RetryAt = settleRetry // discovery lags behind the event that announced the kind
	}
	return rep, nil
}

// RetryPolicy configures the delays before retries.
type RetryPolicy struct {
	// Interval is the delay after a failed write. Transient errors are retried sooner.
	Interval time.Duration
	// ContestedInterval is the delay before the next correction of an object that another writer
	// keeps changing; at least a minute.
	ContestedInterval time.Duration
}

// ResetBackoff drops the back-offs of an owner, and the counted corrections, which would cause new
// back-offs at once. It is for a user who requests an immediate retry.
func (e *Engine) ResetBackoff(key plan.OwnerKey) {
	e.backoffs.resetAll(key.String())
	e.corrections.resetAll(key.String())
	e.existed.resetAll(key.String())
}

// ResetRecreations drops the history of the objects that an owner created and deleted repeatedly: a
// user changed its desired state, or requests an immediate retry.
func (e *Engine) ResetRecreations(key plan.OwnerKey) { e.recreations.resetAll(key.String()) }

// resetUnservedBackoffs drops the back-offs of objects whose kind is no longer served: the cause of
// the failure is gone with the kind, and the retry is triggered by the event of the kind's return.
// It returns true if the plan waits for a kind.
func (a *executor) resetUnservedBackoffs(p *plan.Plan) (waitsForKind bool) {
	for i := range p.Waits {
		if w := &p.Waits[i]; w.Reason == plan.ReasonNotServed {
			a.engine.backoffs.reset(a.ownerKey, w.Item.ID)
			waitsForKind = true
		}
	}
	return waitsForKind
}
