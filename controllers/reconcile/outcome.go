package reconcile

import (
	"cmp"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Outcome is the result of a reconcile: Done, Waiting, Retry, Stalled or Deferred. Its type decides
// what happens next; the text of an error never does.
type Outcome interface{ outcome() }

// Done means that the actual state matches the desired state.
type Done struct {
	// Message of the Ready condition.
	Message string
	// Reason of the Ready condition; ReconciliationSucceeded if empty.
	Reason string
	// Revision that is applied, for events.
	Revision string
	// RequeueAt is the time of the next reconcile for another matter; zero: after the interval.
	RequeueAt time.Time
	// RevisionOnly is true if nothing but the revision changed. The status write then yields to
	// other objects, which may have more important changes of that revision.
	RevisionOnly bool
}

// Waiting means that the next step has to wait for something whose event triggers a reconcile of
// the object.
type Waiting struct {
	// On is the message of the Ready condition: what the object waits for.
	On string
	// For are the objects that it waits for, for status.waitsFor. There is at least one.
	For []appsv1.WaitReference
	// Reason of the Ready condition; Progressing if empty.
	Reason string
	// RequeueAt is the time of the next reconcile without an event; zero: after the interval.
	RequeueAt time.Time
	// TimedOut is true if the wait takes longer than the timeout of the object. Ready becomes
	// False, and the work continues.
	TimedOut bool
	// Revision that is being applied, for events.
	Revision string
}

// Retry means that the reconcile failed with an error that another attempt may resolve.
type Retry struct {
	Err error
	// Reason of the Ready condition; ReconciliationFailed if empty.
	Reason string
	// RequeueAfter is the wait before the next attempt; 0: the retryInterval of the object.
	RequeueAfter time.Duration
	// RequeueAt is the latest time of the next reconcile; zero: only RequeueAfter counts.
	RequeueAt time.Time
	// Revision of the failed attempt, for events.
	Revision string
}

// Stalled means that the error persists until somebody changes the object or an object that it
// refers to.
type Stalled struct {
	Err error
	// Reason of the Ready and Stalled conditions; ReconciliationFailed if empty.
	Reason string
	// RequeueAt is the time of the next reconcile without a change, for another matter than the
	// failure; zero: after the interval.
	RequeueAt time.Time
	// Revision of the failed attempt, for events.
	Revision string
}

// Deferred means that the available information does not suffice for an outcome. Nothing is
// written. The next reconcile is triggered by an event, or at RequeueAt; zero: after the interval.
type Deferred struct {
	RequeueAt time.Time
}

// RequeueBy returns an outcome with RequeueAt set to a time if that is sooner. A zero time and Done
// leave the outcome unchanged.
func RequeueBy(o Outcome, at time.Time) Outcome {
	sooner := func(until *time.Time) {
		if until.IsZero() || at.Before(*until) {
			*until = at
		}
	}
	if at.IsZero() {
		return o
	}
	switch o := o.(type) {
	case Waiting:
		sooner(&o.RequeueAt)
		return o
	case Retry:
		sooner(&o.RequeueAt)
		return o
	case Stalled:
		sooner(&o.RequeueAt)
		return o
	case Deferred:
		sooner(&o.RequeueAt)
		return o
	}
	return o
}

func (Deferred) outcome() {}
func (Done) outcome()     {}
func (Waiting) outcome()  {}
func (Retry) outcome()    {}
func (Stalled) outcome()  {}

// outcomeEffects is what an outcome means for conditions, events, the requeue and the finalizer.
type outcomeEffects struct {
	ready            string // True, False, Unknown
	waitsFor         []appsv1.WaitReference
	reason, message  string
	reconciling      string // reason of the Reconciling condition; empty: the condition is absent
	next             string // what the Reconciling condition says about the next reconcile
	stalled          bool
	revision         string
	warning          bool
	requeueAt        time.Time
	requeueAfter     time.Duration
	useRetryInterval bool
	removeFinalizer  bool
	revisionOnly     bool
}

// effectsOf maps an outcome to its effects. No other code does this.
func effectsOf(o Outcome) outcomeEffects {
	switch o := o.(type) {
	case Done:
		return outcomeEffects{ready: "True", reason: cmp.Or(o.Reason, fluxmeta.ReconciliationSucceededReason),
			message:  o.Message,
			revision: o.Revision, removeFinalizer: true, revisionOnly: o.RevisionOnly, requeueAt: o.RequeueAt}
	case Waiting:
		v := outcomeEffects{ready: "Unknown", waitsFor: o.For, reason: cmp.Or(o.Reason, fluxmeta.ProgressingReason),
			message:     o.On,
			reconciling: fluxmeta.ProgressingReason, revision: o.Revision, requeueAt: o.RequeueAt}
		if o.TimedOut {
			v.ready, v.reason, v.warning = "False", cmp.Or(o.Reason, appsv1.TimeoutReason), true
		}
		return v
	case Retry:
		return outcomeEffects{ready: "False", reason: cmp.Or(o.Reason, fluxmeta.ReconciliationFailedReason),
			message:     o.Err.Error(),
			reconciling: fluxmeta.ProgressingWithRetryReason, revision: o.Revision, warning: true,
			requeueAfter: o.RequeueAfter, useRetryInterval: o.RequeueAfter == 0, requeueAt: o.RequeueAt}
	case Stalled:
		return outcomeEffects{ready: "False", reason: cmp.Or(o.Reason, fluxmeta.ReconciliationFailedReason),
			message: o.Err.Error(),
			stalled: true, revision: o.Revision, warning: true, requeueAt: o.RequeueAt}
	default:
		panic("reconcile: unknown type of outcome")
	}
}

// ReadyCondition returns the Ready condition that an outcome results in, without times.
func ReadyCondition(o Outcome) metav1.Condition {
	e := effectsOf(o)
	return metav1.Condition{Type: appsv1.ReadyCondition, Status: metav1.ConditionStatus(e.ready), Reason: e.reason,
		Message: Truncate(e.message, maxMessageBytes)}
}
