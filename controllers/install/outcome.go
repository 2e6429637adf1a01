package install

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// outcome returns the outcome of a reconcile, and sets the components in the status.
func (o *owner) outcome(rep *engine.Report, revision string, now time.Time) reconcile.Outcome {
	st := &o.req.Object.Status
	if rep.SyncError == nil {
		o.unsyncedSince = time.Time{}
	}
	st.Components = o.componentStatuses(rep.Plan.Components)
	blocked, removable := o.blockedByRemoval(rep), o.removableObjects()
	switch {
	case rep.SyncError != nil && o.withinSyncGrace(now):
		return reconcile.Deferred{RequeueAt: o.unsyncedSince.Add(syncGracePeriod)}
	case rep.SyncError != nil:
		return reconcile.Waiting{On: rep.SyncError.Error(), For: engine.WaitReferences(o.key, rep),
			Reason: appsv1.IndexStaleReason, RequeueAt: rep.RetryAt, Revision: revision}
	case o.countRequested() > 0 && len(removable) == 0 && settledExcept(rep, blocked):
		return o.unapprovedOutcome()
	case len(removable) > 0 && !componentFailed(rep):
		return o.removalOutcome(rep, o.countRequested(), now)
	case hasFailed(rep):
		return o.failureOutcome(rep, revision, now)
	case anyBlocked(rep), o.provisional && !settledExcept(rep, blocked):
		return blockedOutcome(o.unmetDependencies, revision)
	case unapprovedDeletions(rep) != nil:
		return reconcile.Stalled{Err: unapprovedDeletions(rep), Reason: appsv1.DeletionsHeldReason, Revision: revision}
	case !settledExcept(rep, blocked):
		return o.waitingOutcome(rep, revision, now)
	}
	o.waitingFor, o.waitingSince = "", time.Time{}
	// Changes of objects count until a status with this revision has been read.
	o.changedObjects = o.changedObjects && st.LastAppliedRevision != revision
	minor := !o.changedObjects && st.LastAppliedRevision != "" && st.LastAppliedRevision != revision &&
		handover.IsReady(o.req.Object)
	st.LastAppliedRevision = revision
	objects := 0
	var drifted []string
	for _, c := range rep.Plan.Components {
		objects += c.Objects
		drifted = append(drifted, c.Drifted...)
	}
	message := fmt.Sprintf("Applied revision %s: %s %s, %d components, %d objects ready", revision,
		o.req.Object.Spec.Stack, st.StackVersion, len(rep.Plan.Components), objects)
	if mode := o.Policies().Drift; len(drifted) > 0 && mode == appsv1.DriftWarn {
		message += "; drift is not corrected (spec.drift.mode: Warn): " + reconcile.JoinNames(drifted)
	}
	for _, left := range rep.Plan.Left {
		if left.Message != "" {
			message += "; " + left.Message
		}
	}
	if !o.removalRequests.firstReinstall().IsZero() {
		return o.unapprovedOutcome()
	}
	if len(o.removalRequests) > 0 {
		return reconcile.Done{Reason: appsv1.RemovedByRequestReason, Message: message + o.removalSummary(blocked),
			Revision: revision}
	}
	return reconcile.Done{Message: message, Revision: revision, RevisionOnly: minor}
}

// syncGracePeriod is how long the index may take to list a kind before the condition reports it.
// After a start, and when a kind is used for the first time, listing takes moments.
const syncGracePeriod = 30 * time.Second

// withinSyncGrace reports whether the index has been out of sync for less than syncGracePeriod.
func (o *owner) withinSyncGrace(now time.Time) bool {
	if o.unsyncedSince.IsZero() {
		o.unsyncedSince = now
	}
	return now.Sub(o.unsyncedSince) < syncGracePeriod
}

func hasFailed(rep *engine.Report) bool {
	return len(rep.Errors) > 0 || componentFailed(rep)
}

func componentFailed(rep *engine.Report) bool {
	return slices.ContainsFunc(rep.Plan.Components, func(c plan.ComponentState) bool { return c.Failed })
}

// failureOutcome is the outcome of a reconcile in which components or requests failed.
func (o *owner) failureOutcome(rep *engine.Report, revision string, now time.Time) reconcile.Outcome {
	message := failureMessage(rep)
	if len(engine.DeniedNamespaces(rep.Errors)) > 0 && o.key.Cluster == plan.LocalCluster {
		message += "; retried when a role, a binding or a namespace changes"
	}
	err := errors.New(message)
	reason, terminal := failureReason(rep)
	if terminal && rep.RetryAt.IsZero() {
		return reconcile.Stalled{Err: err, Reason: reason, Revision: revision}
	}
	out := reconcile.Retry{Err: err, Reason: reason, Revision: revision}
	if !rep.RetryAt.IsZero() {
		out.RequeueAfter = max(rep.RetryAt.Sub(now), time.Millisecond)
	}
	return out
}

// failureReason returns the most specific reason of the failures. terminal is true if only a change
// of the stack can correct them.
func failureReason(rep *engine.Report) (reason string, terminal bool) {
	if _, owned := errors.AsType[*plan.OwnedByOtherError](errors.Join(rep.Errors...)); owned {
		return appsv1.OwnedByAnotherReason, false
	}
	if _, different := errors.AsType[*engine.DifferentError](errors.Join(rep.Errors...)); different {
		return appsv1.ObjectsDifferReason, false
	}
	if _, invalid := errors.AsType[*plan.InvalidObjectError](errors.Join(rep.Errors...)); invalid {
		return appsv1.InvalidObjectReason, false
	}
	if onlyContested(rep.Errors) {
		return appsv1.ContestedReason, false
	}
	for _, w := range rep.Plan.Waits {
		switch w.Reason {
		case plan.ReasonOwnedByOther:
			return appsv1.OwnedByAnotherReason, false
		case plan.ReasonInvalid:
			reason = appsv1.InvalidObjectReason
		}
	}
	return reason, reason != "" && len(rep.Errors) == 0
}

// onlyContested reports whether all errors, at least one, are ContestedErrors.
func onlyContested(errs []error) bool {
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool {
		return !errors.As(err, new(*engine.ContestedError))
	})
}

// failureMessage returns the messages of the failed components. If there are none, it returns the
// errors of the requests. Each failure is reported once.
func failureMessage(rep *engine.Report) string {
	var out []string
	for _, c := range rep.Plan.Components {
		if c.Failed {
			out = append(out, fmt.Sprintf("component %q: %s", c.Name, c.Message))
		}
	}
	if len(out) == 0 {
		for _, err := range rep.Errors {
			out = append(out, err.Error())
		}
	}
	return reconcile.JoinNames(out)
}

// waitingOutcome is the outcome of a reconcile that waits for components to become ready. It is
// late if they take longer than the timeout, or if an object reports a failure.
func (o *owner) waitingOutcome(rep *engine.Report, revision string, now time.Time) reconcile.Outcome {
	wave, on := pendingComponents(rep)
	deadline := o.waitDeadline(wave, rep, now)
	out := reconcile.Waiting{On: on, For: engine.WaitReferences(o.key, rep), Revision: revision}
	switch {
	case preRemoveFailed(rep):
		out.TimedOut, out.Reason = true, appsv1.PreRemoveFailedReason
	case anyJobFailed(rep):
		out.TimedOut, out.Reason = true, appsv1.JobFailedReason
	case anyUnhealthy(rep):
		// The failure may be temporary: that of a Deployment ends when its pods start after all.
		out.TimedOut, out.Reason = true, fluxmeta.HealthCheckFailedReason
	case now.Before(deadline):
		out.RequeueAt = deadline
	default:
		out.TimedOut = true
		out.On = fmt.Sprintf("not ready within %s: %s", reconcile.Timeout(&o.req.Object.Spec.Schedule), on)
	}
	return reconcile.RequeueBy(out, rep.RetryAt)
}

func anyJobFailed(rep *engine.Report) bool {
	return slices.ContainsFunc(rep.Plan.Components, func(c plan.ComponentState) bool { return c.JobFailed })
}

func anyUnhealthy(rep *engine.Report) bool {
	return slices.ContainsFunc(rep.Plan.Components, func(c plan.ComponentState) bool { return c.Unhealthy })
}

// pendingComponents returns the names of the components that are not ready, which identify the
// wave, and messages about what they wait for.
func pendingComponents(rep *engine.Report) (wave, on string) {
	var names, out []string
	for _, c := range rep.Plan.Components {
		if !c.Ready {
			names = append(names, c.Name)
			if c.Message != "" {
				out = append(out, fmt.Sprintf("component %q: %s", c.Name, c.Message))
			}
		}
	}
	for _, w := range rep.Plan.Waits {
		if w.Item == nil && w.Message != "" {
			out = append(out, w.Message)
		}
	}
	return strings.Join(names, ","), reconcile.JoinNames(out)
}

// unapprovedDeletions returns the deletions of a plan that need an approval. It returns nil if
// there are none.
func unapprovedDeletions(rep *engine.Report) (err *plan.ApprovalRequiredError) {
	for _, w := range rep.Plan.Waits {
		if errors.As(w.Err, &err) {
			return err
		}
	}
	return nil
}
