package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks"
)

// Finalize implements reconcile.Steps. It works without the source and the stack.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) (out reconcile.Outcome) {
	o, err := s.owner(ctx, req)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	defer func() { out = s.endReconcile(o, out) }()
	s.retryDenied(o)
	abandoned := reconcile.Abandoned(req.Object)
	// With the abandon annotation, the publication is garbage collected with the install.
	if err := s.withdraw(ctx, o); err != nil && !abandoned {
		return reconcile.Retry{Err: err}
	}
	terminating := reconcile.IsDeletedWithNamespace(ctx, s.Client, req.Object)
	if o.terminatingNamespace = ""; terminating && o.key.Cluster == plan.LocalCluster {
		o.terminatingNamespace = req.Object.Namespace
	}
	if o.inv.Len() == 0 && !s.hasStrays(o) {
		if err := o.flush(ctx); err != nil {
			return s.interruptedOutcome(o, err, "")
		}
		s.forgetOwner(o)
		return reconcile.Done{Message: "no objects are left to remove"}
	}
	if abandoned {
		return s.abandon(ctx, o)
	}
	o.holdAll = false
	// KsctlRemoves decide which objects are kept.
	if err := errors.Join(s.updateRemovalRequests(ctx, o), s.updateLineage(ctx, o)); err != nil {
		return reconcile.Retry{Err: err}
	}
	if out := s.deferOnStalePlan(ctx, req.Object); out != nil {
		return out
	}
	o.handover = s.newHandover(o, "")
	dependents, err := s.blockingDependents(ctx, o)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if len(dependents) > 0 {
		return dependentsOutcome(dependents)
	}
	return s.teardown(ctx, o, terminating)
}

// teardown removes the objects of an install. terminating tells that its namespace is being
// deleted.
func (s *Steps) teardown(ctx context.Context, o *owner, terminating bool) (out reconcile.Outcome) {
	in := o.req.Object
	c, err := reconcile.RecordedAccountClient(ctx, s.Client, s.Targets.Local, in, s.serviceAccountName(in))
	if err != nil {
		return s.finalizeWithoutAccount(ctx, o, err)
	}
	if c, err = s.resolveTarget(ctx, o, c); err != nil {
		return target.Outcome(withAbandonHint(in, err), "")
	}
	pass, err := s.pass(ctx, o, c, nil)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	rep, err := s.Engine.Teardown(ctx, pass)
	if out := s.recordPass(ctx, o, rep, err, nil, ""); out != nil {
		return out
	}
	if o.inv.Len() == 0 {
		return reconcile.Done{Message: "all objects were removed"}
	}
	if out, lost := s.orClusterLost(o, nil, "", rep.Errors...); lost {
		return out
	}
	out = o.removalOutcome(rep, o.inv.Len(), s.Clock.Now())
	if terminating && len(engine.DeniedNamespaces(rep.Errors)) > 0 {
		out = withTerminatingHint(in, out)
	}
	return reconcile.RequeueBy(out, o.handover.RetryAt)
}

// hasStrays reports whether objects were handed over to an install that has no objects yet. In
// another cluster they are found when the install has objects there.
func (s *Steps) hasStrays(o *owner) bool {
	return o.key.Cluster == plan.LocalCluster &&
		len(s.Targets.Local.Index.Strays(o.key.String(), func(stacks.Ref) bool { return false })) > 0
}

// finalizeWithoutAccount completes a removal without its service account if no objects are left to
// remove. It never removes an object with the permissions of the controller.
func (s *Steps) finalizeWithoutAccount(ctx context.Context, o *owner, cause error) reconcile.Outcome {
	if o.key.Cluster != plan.LocalCluster { // without the account, the kubeconfig cannot be read
		return reconcile.OutcomeOf(withAbandonHint(o.req.Object, cause), "")
	}
	reader, err := s.Targets.Local.ClientFor(nil)
	if err == nil {
		err = s.Engine.ForgetMissing(ctx, s.Targets.Local, reader, o)
	}
	if err == nil && o.inv.Len() > 0 {
		err = fmt.Errorf("%d objects are left to remove: %w", o.inv.Len(), cause)
	}
	if err := o.flush(ctx); err != nil {
		return s.interruptedOutcome(o, err, "")
	}
	if err != nil {
		return reconcile.OutcomeOf(err, "")
	}
	return reconcile.Done{Message: "no objects are left to remove"}
}

// abandon completes the removal of an install that has the abandon annotation. Its remaining
// objects stay in the cluster and are recorded in an event and in the log.
func (s *Steps) abandon(ctx context.Context, o *owner) reconcile.Outcome {
	if err := s.abandonInventory(ctx, o, ""); err != nil {
		return s.interruptedOutcome(o, err, "")
	}
	s.forgetOwner(o)
	return reconcile.Done{Message: "abandoned"}
}

// abandonInventory removes all objects from the inventory of an install, without deleting them. It
// records them and the reason, which can be empty, in an event and in the log.
func (s *Steps) abandonInventory(ctx context.Context, o *owner, reason string) error {
	var abandoned []string
	for _, e := range o.inv.Entries() {
		name := e.ID
		if ref, err := stacks.ParseID(e.ID); err == nil {
			name = ref.String()
		}
		abandoned = append(abandoned, name)
		o.inv.Remove(e.ID)
	}
	if err := o.flush(ctx); err != nil {
		return err
	}
	log.FromContext(ctx).Info("objects are abandoned and stay in the cluster", "objects", abandoned, "why", reason)
	message := fmt.Sprintf("%d objects are abandoned and stay in the cluster: %s", len(abandoned),
		reconcile.JoinNames(abandoned))
	if reason != "" {
		message += "; " + reason
	}
	o.req.Event(corev1.EventTypeWarning, appsv1.AbandonedReason, message)
	return nil
}

// removalOutcome is the outcome of a removal that is not complete. It is late if the removal makes
// no progress within the timeout, or if a pre-remove Job fails. A late removal continues.
func (o *owner) removalOutcome(rep *engine.Report, left int, now time.Time) reconcile.Outcome {
	deadline := o.waitDeadline(appsv1.RemovingReason, rep, now)
	var blockers []string
	for _, w := range rep.Plan.Waits {
		if w.Message != "" && w.Item == nil {
			blockers = append(blockers, w.Message)
		}
	}
	for _, err := range rep.Errors {
		if m := err.Error(); !slices.Contains(blockers, m) { // the wait for a retry has the same message
			blockers = append(blockers, m)
		}
	}
	message := fmt.Sprintf("%d objects are left to remove", left)
	if len(blockers) > 0 {
		message += ": " + reconcile.JoinNames(blockers)
	}
	out := reconcile.Waiting{On: message, For: engine.WaitReferences(o.key, rep), Reason: appsv1.RemovingReason,
		RequeueAt: rep.RetryAt}
	switch {
	case preRemoveFailed(rep):
		out.TimedOut, out.Reason = true, appsv1.PreRemoveFailedReason
	case now.Before(deadline):
		return reconcile.RequeueBy(out, deadline)
	default:
		out.TimedOut, out.Reason = true, appsv1.TimeoutReason
		out.On = fmt.Sprintf("removal made no progress within %s: %s", reconcile.Timeout(&o.req.Object.Spec.Schedule),
			message)
	}
	return out
}

// waitDeadline returns the time at which a wait for a wave, or for the removal, times out. A change
// of an object restarts the wait.
func (o *owner) waitDeadline(waitsFor string, rep *engine.Report, now time.Time) time.Time {
	if waitsFor != o.waitingFor || o.waitingSince.IsZero() || len(rep.Changes) > 0 {
		o.waitingFor, o.waitingSince = waitsFor, now
	}
	return o.waitingSince.Add(reconcile.Timeout(&o.req.Object.Spec.Schedule))
}

// preRemoveFailed reports whether a Job or a hook failed that must succeed before or after a
// removal.
func preRemoveFailed(rep *engine.Report) bool {
	return slices.ContainsFunc(rep.Plan.Waits, func(w plan.Action) bool {
		return errors.As(w.Err, new(*plan.PreRemoveError)) || errors.As(w.Err, new(*plan.RemovalHookError))
	})
}
