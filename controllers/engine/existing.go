package engine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

// findExisting reads the webhook configurations that wait for workloads, once in a pass: one that
// exists already is not new, so that it is taken over, or refused, without a wait. It returns true
// if the plan changes. A configuration that may not be read waits like one that does not exist.
func (a *executor) findExisting(ctx context.Context, waits []plan.Action) (bool, error) {
	replan := false
	for i := range waits {
		act := waits[i]
		if _, known := a.existing[act.Entry.ID]; known || act.Reason != plan.ReasonAwaitsWorkloads {
			continue
		}
		_, err := a.resource(act.Item).Get(ctx, act.Item.Name, metav1.GetOptions{})
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
		replan = replan || err == nil
	}
	return replan, nil
}
