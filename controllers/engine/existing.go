package engine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

// findExisting reads the objects that the plan treats differently if they exist already, once in a
// pass: webhook configurations that wait for workloads, which are then taken over, or refused,
// without a wait, and create-only objects, which then stay as they are. It returns true if the plan
// changes. An object that may not be read counts as one that does not exist.
func (a *executor) findExisting(ctx context.Context, p *plan.Plan) (bool, error) {
	replan := false
	for _, actions := range [][]plan.Action{p.Waits, p.Actions} {
		for i := range actions {
			act := actions[i]
			createOnly := act.Verb == plan.VerbCreate && act.Item.IsCreateOnly()
			if _, known := a.existing[act.Entry.ID]; known || !createOnly && act.Reason != plan.ReasonAwaitsWorkloads {
				continue
			}
			u, err := a.resource(act.Item).Get(ctx, act.Item.Name, metav1.GetOptions{})
			a.existing[act.Entry.ID] = err == nil
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
				act.Verb = plan.VerbCreate
				r := a.errorResult(&act, err)
				if r.fatal != nil {
					return false, r.fatal
				}
				a.backOff(&act, r.err)
				replan = true
			}
			if err == nil && createOnly {
				a.leaveExisting(&act, u)
			}
			replan = replan || err == nil
		}
	}
	return replan, nil
}

// leaveExisting records that a create-only object existed, unless the owner created it. No watch
// observes it, so that it is read again after an interval.
func (a *executor) leaveExisting(act *plan.Action, u *unstructured.Unstructured) actionResult {
	id := act.Entry.ID
	isOwn := a.hasOwnMark(u, id)
	a.mu.Lock()
	a.existing[id] = !isOwn
	a.mu.Unlock()
	if isOwn {
		return a.observe(act, u, planAgain)
	}
	until := a.engine.clock.Now().Add(max(a.retry.ContestedInterval, correctionWindow))
	a.engine.existed.record(a.ownerKey, id, until)
	a.mu.Lock()
	a.settleBy(until)
	a.mu.Unlock()
	return planAgain
}

// rememberExisting adds the create-only objects that were read less than an interval ago.
func (a *executor) rememberExisting() {
	now := a.engine.clock.Now()
	for id, until := range a.engine.existed.all(a.ownerKey) {
		if !a.desired[id] || !now.Before(until) {
			a.engine.existed.reset(a.ownerKey, id)
			continue
		}
		a.existing[id] = true
		a.settleBy(until)
	}
}
