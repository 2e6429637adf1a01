package reconcile

import (
	"cmp"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
)

// Outcome is how a reconcile ended. Its type decides what happens next; the
// text of an error never does.
type Outcome interface{ outcome() }

// Done says that everything is as it is wanted.
type Done struct {
	// Message for the Ready condition.
	Message string
	// Reason of the Ready condition; ReconciliationSucceeded when empty.
	Reason string
	// Revision that is in place, for events.
	Revision string
	// Until is when to look again for something beside what is done; zero: at the interval.
	Until time.Time
	// Minor is true when nothing but the revision is new: others, who may have more to
	// say of it, come first.
	Minor bool
}

// Waiting says that the next step waits for something that will wake the
// object by an event.
type Waiting struct {
	// On is what is waited for.
	On string
	// Reason of the Ready condition; Progressing when empty.
	Reason string
	// Until is when to look again without an event; zero: at the interval.
	Until time.Time
	// Late is true when it takes longer than the object's timeout: Ready is
	// False then, and the work goes on.
	Late bool
	// Revision that is being put in place, for events.
	Revision string
}

// Retry says that something failed that another try may mend.
type Retry struct {
	Err error
	// Reason of the Ready condition; ReconciliationFailed when empty.
	Reason string
	// After is when to try again; the object's retryInterval when 0.
	After time.Duration
	// Until is when to look again at the latest; zero: as After says.
	Until time.Time
	// Revision that was tried, for events.
	Revision string
}

// Stalled says that nothing will change until somebody changes the object or
// what it refers to.
type Stalled struct {
	Err error
	// Reason of the Ready and Stalled conditions; ReconciliationFailed when empty.
	Reason string
	// Until is when to look again without a change, for something else than what
	// failed; zero: at the interval.
	Until time.Time
	// Revision that was tried, for events.
	Revision string
}

// Deferred says nothing yet: what is known does not suffice to judge, and an
// event or Until will tell more; zero: at the interval. Nothing is written.
type Deferred struct {
	Until time.Time
}

// By is an outcome with which the object is looked at again at a time, if that is
// sooner; zero: as it is. What is done has nothing to look at.
func By(o Outcome, at time.Time) Outcome {
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
		sooner(&o.Until)
		return o
	case Retry:
		sooner(&o.Until)
		return o
	case Stalled:
		sooner(&o.Until)
		return o
	case Deferred:
		sooner(&o.Until)
		return o
	}
	return o
}

func (Deferred) outcome() {}
func (Done) outcome()     {}
func (Waiting) outcome()  {}
func (Retry) outcome()    {}
func (Stalled) outcome()  {}

// Reasons of conditions beside those of fluxcd/pkg/apis/meta.
const (
	// IndexStaleReason: the index of the cluster does not know everything.
	IndexStaleReason = "IndexStale"
	// TimeoutReason: it takes longer than spec.timeout.
	TimeoutReason = "Timeout"
	// AccountNotFoundReason: the service account does not exist.
	AccountNotFoundReason = "ServiceAccountNotFound"
	// RemovingReason: the object is being torn down.
	RemovingReason = "Removing"
)

// verdict is an outcome in terms of conditions.
type verdict struct {
	ready           string // True, False, Unknown
	reason, message string
	reconciling     string // reason; empty: absent
	stalled         bool
	revision        string
	warning         bool
	requeueAt       time.Time
	requeueAfter    time.Duration
	atRetryInterval bool
	removeFinalizer bool
	minor           bool
}

// judge maps an outcome to conditions. It is the only place that does.
func judge(o Outcome) verdict {
	switch o := o.(type) {
	case Done:
		return verdict{ready: "True", reason: cmp.Or(o.Reason, fluxmeta.ReconciliationSucceededReason), message: o.Message,
			revision: o.Revision, removeFinalizer: true, minor: o.Minor, requeueAt: o.Until}
	case Waiting:
		v := verdict{ready: "Unknown", reason: cmp.Or(o.Reason, fluxmeta.ProgressingReason), message: o.On,
			reconciling: fluxmeta.ProgressingReason, revision: o.Revision, requeueAt: o.Until}
		if o.Late {
			v.ready, v.reason, v.warning = "False", cmp.Or(o.Reason, TimeoutReason), true
		}
		return v
	case Retry:
		return verdict{ready: "False", reason: cmp.Or(o.Reason, fluxmeta.ReconciliationFailedReason), message: o.Err.Error(),
			reconciling: fluxmeta.ProgressingWithRetryReason, revision: o.Revision, warning: true,
			requeueAfter: o.After, atRetryInterval: o.After == 0, requeueAt: o.Until}
	case Stalled:
		return verdict{ready: "False", reason: cmp.Or(o.Reason, fluxmeta.ReconciliationFailedReason), message: o.Err.Error(),
			stalled: true, revision: o.Revision, warning: true, requeueAt: o.Until}
	default:
		panic("reconcile: outcome of unknown type")
	}
}
