package engine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// recordPreRemoveJob records that the removal no longer waits for a Job: it succeeded, or will
// never run.
func recordPreRemoveJob(act *plan.Action, ref stacks.Ref) actionResult {
	e := act.Entry
	e.State = appsv1.EntryDone
	change := &Change{Verb: plan.VerbRecord, Reason: plan.ReasonPreRemove, Ref: ref, Message: "it succeeded"}
	if act.Message != "" {
		change.Verb, change.Message = plan.VerbSkip, act.Message
	}
	return actionResult{entry: &e, change: change}
}

// runPreRemoveJob resumes a suspended Job.
func (a *executor) runPreRemoveJob(ctx context.Context, act *plan.Action, ref stacks.Ref,
	r dynamic.ResourceInterface) actionResult {
	if act.Live == nil {
		return a.findPreRemoveJob(ctx, act, ref, r)
	}
	u, err := a.mergePatch(ctx, WriteUpdate, r, ref.Name,
		map[string]any{"metadata": map[string]any{"uid": act.Live.UID}, "spec": map[string]any{"suspend": false}})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		a.target.Index.ObserveGone(ref, act.Live.UID)
		return planAgain
	case err != nil:
		return a.errorResult(act, err)
	}
	return a.observe(act, u, actionResult{change: &Change{
		Verb: plan.VerbRun, Reason: plan.ReasonPreRemove, Ref: ref, Message: "it runs before anything is removed"}})
}

// findPreRemoveJob reads a Job that the index does not know. The removal continues without a Job
// that is gone: a user may delete it to skip it.
func (a *executor) findPreRemoveJob(ctx context.Context, act *plan.Action, ref stacks.Ref,
	r dynamic.ResourceInterface) actionResult {
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return a.errorResult(act, err)
	}
	switch {
	case err != nil:
		act.Message = "it is gone: it did not run"
	case a.hasOwnMark(u, act.Entry.ID) && u.GetUID() == act.Entry.UID:
		return a.observe(act, u, planAgain)
	default:
		act.Message = "it is no longer managed: it did not run"
	}
	return recordPreRemoveJob(act, ref)
}
