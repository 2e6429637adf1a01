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
	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks"
)

// Finalize implements reconcile.Steps. It needs neither source nor stack.
func (s *Steps) Finalize(ctx context.Context, req *reconcile.Request[*appsv1.KsctlInstall]) reconcile.Outcome {
	o, err := s.owner(ctx, req)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	defer o.rest()
	a := req.Object.Annotations[appsv1.AbandonAnnotation]
	abandoned := a != "" && a == string(req.Object.UID)
	if err := s.withdraw(ctx, o); err != nil && !abandoned { // else it goes as what belongs to the install
		return reconcile.Retry{Err: err}
	}
	if o.inv.Len() == 0 {
		if err := o.flush(ctx); err != nil {
			return s.unrecorded(o, err, "")
		}
		s.leave(o)
		return reconcile.Done{Message: "nothing is left"}
	}
	if abandoned {
		return s.abandon(ctx, o)
	}
	o.holdAll = false
	if err := s.followed(ctx, o); err != nil { // they say how it goes
		return reconcile.Retry{Err: err}
	}
	if out := s.untold(ctx, req.Object); out != nil {
		return out
	}
	s.findHeirs(o, "")
	before, err := s.dependents(ctx, o)
	if err != nil {
		return reconcile.Retry{Err: err}
	}
	if len(before) > 0 {
		return reconcile.Waiting{On: "these depend on it and go first: " + list(before), Reason: DependentsReason}
	}
	c, err := s.clientFor(ctx, req.Object)
	if err != nil {
		return s.withoutAccount(ctx, o, err)
	}
	if c, err = s.aim(ctx, o, c); err != nil {
		return target.Outcome(orAbandon(req.Object, err), "")
	}
	rep, err := s.Engine.Teardown(ctx, o.target, c, o, s.retry(req.Object))
	o.report(rep)
	if err == nil {
		s.settled(o, rep)
		err = o.flush(ctx)
	}
	if err != nil {
		return s.unrecorded(o, err, "")
	}
	if o.inv.Len() == 0 {
		return reconcile.Done{Message: "everything was removed"}
	}
	if out, lost := s.orLost(o, nil, "", rep.Errors...); lost {
		return out
	}
	return o.removing(rep, o.inv.Len(), s.Clock.Now())
}

// withoutAccount ends a removal whose account is gone if nothing is left to
// remove. Never with the controller's own rights.
func (s *Steps) withoutAccount(ctx context.Context, o *owner, cause error) reconcile.Outcome {
	if o.key.Cluster != engine.LocalCluster { // who is there to read the kubeconfig?
		return account.Outcome(orAbandon(o.req.Object, cause), "")
	}
	reader, err := s.Targets.Local.Client(nil)
	if err == nil {
		err = s.Engine.Vanished(ctx, s.Targets.Local, reader, o)
	}
	if err == nil && o.inv.Len() > 0 {
		err = fmt.Errorf("%d objects are left to remove: %w", o.inv.Len(), cause)
	}
	if err := o.flush(ctx); err != nil {
		return s.unrecorded(o, err, "")
	}
	if err != nil {
		return account.Outcome(err, "")
	}
	return reconcile.Done{Message: "nothing is left"}
}

// abandon lets an install go whatever of what it owns is left, as its annotation
// says, and records what that is.
func (s *Steps) abandon(ctx context.Context, o *owner) reconcile.Outcome {
	if err := s.giveUp(ctx, o, ""); err != nil {
		return s.unrecorded(o, err, "")
	}
	s.leave(o)
	return reconcile.Done{Message: "abandoned"}
}

// giveUp forgets what an install has, and says what that is, and why.
func (s *Steps) giveUp(ctx context.Context, o *owner, why string) error {
	var left []string
	for _, e := range o.inv.Entries() {
		name := e.ID
		if ref, err := stacks.ParseID(e.ID); err == nil {
			name = ref.String()
		}
		left = append(left, name)
		o.inv.Remove(e.ID)
	}
	if err := o.flush(ctx); err != nil {
		return err
	}
	log.FromContext(ctx).Info("abandoned: left behind as they are", "objects", left, "why", why)
	message := fmt.Sprintf("%d objects are left behind as they are: %s", len(left), list(left))
	if why != "" {
		message += "; " + why
	}
	o.req.Event(corev1.EventTypeWarning, AbandonedReason, message)
	return nil
}

// removing says what the removal waits for, and when that takes too long. It goes
// on all the same.
func (o *owner) removing(rep *engine.Report, left int, now time.Time) reconcile.Outcome {
	if o.since.IsZero() || o.waitingFor != reconcile.RemovingReason || len(rep.Changes) > 0 {
		o.waitingFor, o.since = reconcile.RemovingReason, now
	}
	var on []string
	for _, w := range rep.Plan.Waits {
		if w.Message != "" && w.Item == nil {
			on = append(on, w.Message)
		}
	}
	for _, err := range rep.Errors {
		if m := err.Error(); !slices.Contains(on, m) { // what is waited out says the same
			on = append(on, m)
		}
	}
	message := fmt.Sprintf("%d objects are left to remove", left)
	if len(on) > 0 {
		message += ": " + list(on)
	}
	out := reconcile.Waiting{On: message, Reason: reconcile.RemovingReason, Until: rep.RetryAt}
	timeout := reconcile.Timeout(&o.req.Object.Spec.Schedule)
	switch late := o.since.Add(timeout); {
	case preRemoveFailed(rep):
		out.Late, out.Reason = true, PreRemoveFailedReason
	case !now.Before(late):
		out.Late, out.Reason = true, reconcile.TimeoutReason
		out.On = fmt.Sprintf("nothing moved within %s: %s", timeout, message)
	case out.Until.IsZero() || late.Before(out.Until):
		out.Until = late
	}
	return out
}

// preRemoveFailed is true when a Job failed that has to succeed before a removal.
func preRemoveFailed(rep *engine.Report) bool {
	var failed *engine.PreRemoveError
	return slices.ContainsFunc(rep.Plan.Waits, func(w engine.Action) bool { return errors.As(w.Err, &failed) })
}
