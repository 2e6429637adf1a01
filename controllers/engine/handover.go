package engine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// handOverIfAllowed hands an object over if the new owner is allowed to change it.
func (a *executor) handOverIfAllowed(ctx context.Context, act *plan.Action, ref stacks.Ref,
	m *meta.RESTMapping) actionResult {
	if a.mayReceive != nil {
		may, err := a.mayReceive(ctx, *act.HandoverTo, m.Resource, ref)
		if err != nil {
			return a.errorResult(act, err)
		}
		if !may {
			return actionResult{denied: true}
		}
	}
	return a.handOver(ctx, act, ref, a.client.Resource(m.Resource).Namespace(ref.Namespace))
}

// handOver replaces the owner's mark on an object by that of the new owner. The next reconcile of
// the new owner adds the object to its inventory.
func (a *executor) handOver(ctx context.Context, act *plan.Action, ref stacks.Ref,
	r dynamic.ResourceInterface) actionResult {
	result := a.replaceMark(ctx, act, ref, r, act.HandoverTo.String(), actionResult{dropEntry: true, change: &Change{
		Verb: plan.VerbHandOver, Reason: plan.ReasonMoved, Ref: ref, Message: "to " + act.HandoverTo.DisplayName()}})
	if result.change == nil || a.isActive == nil {
		return result
	}
	// Now that the index has the new mark, an owner that is deleted later finds the object.
	if active, err := a.isActive(ctx, *act.HandoverTo, ref); err != nil || active {
		return result //nolint:nilerr // it was just there
	}
	return a.replaceMark(ctx, act, ref, r, a.ownerKey, actionResult{denied: true})
}

// replaceMark replaces the owner in the mark of an object, and returns done if it succeeds.
func (a *executor) replaceMark(ctx context.Context, act *plan.Action, ref stacks.Ref, r dynamic.ResourceInterface,
	owner string, done actionResult) actionResult {
	md := map[string]any{"annotations": map[string]any{
		live.MarkAnnotation: live.Mark{Owner: owner, ID: act.Entry.ID}.String()}}
	if act.Entry.UID != "" {
		md["uid"] = act.Entry.UID
	}
	u, err := a.mergePatch(ctx, WriteRelease, r, ref.Name, map[string]any{"metadata": md})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		a.target.Index.ObserveGone(ref, act.Entry.UID)
		return dropEntry
	case err != nil:
		return a.errorResult(act, err)
	}
	return a.observe(act, u, done)
}
