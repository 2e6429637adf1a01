package engine

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// recreateImmutable deletes an object that cannot be changed in place, to create it again. It does
// so for hooks, and for other objects with spec.force or RecreateAnnotation; never for objects that
// existed before or that are protected. A dry run checks first if the API server would accept the
// new object.
func (a *executor) recreateImmutable(ctx context.Context, act *plan.Action, uid types.UID, state appsv1.EntryState,
	cause error) actionResult {
	it, policies := act.Item, a.owner.Policies()
	if err := a.dryRunCreate(ctx, it); err != nil {
		return a.errorResult(act, cause)
	}
	adopted := state == appsv1.EntryAdopted
	if adopted || (!policies.Force && !it.Recreate && it.Hook == nil) {
		return actionResult{err: &ImmutableError{Ref: it.Ref, Adopted: adopted,
			KeepReason: policies.ProtectReason(it.Ref), Err: cause}}
	}
	r := a.recreate(ctx, act, uid, cause)
	if r.change != nil {
		r.change.Message = "recreated: it cannot be changed in place"
	}
	return r
}

// Reasons to recreate a Job or a Pod that has run.
var (
	errRemovalCanceled = errors.New("it ran before a removal that was canceled")
	errRunsAgain       = errors.New("it is a hook that runs again")
)

// recreate deletes an object, which the next round creates again because it is missing. It reads
// the object first: the index may not know yet that its deletion is forbidden, and a delete cannot
// be undone.
func (a *executor) recreate(ctx context.Context, act *plan.Action, uid types.UID, cause error) actionResult {
	it := act.Item
	refused := func(why string) actionResult {
		return actionResult{err: &ImmutableError{Ref: it.Ref, KeepReason: why, Err: cause}}
	}
	policies := a.owner.Policies()
	if why := policies.ProtectReason(it.Ref); why != "" {
		return refused(why)
	}
	u, err := a.resource(it).Get(ctx, it.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && u.GetUID() != uid:
		a.target.Index.ObserveGone(it.Ref, uid)
		return planAgain
	case err != nil:
		return a.errorResult(act, err)
	case u.GetAnnotations()[live.PreventDeletionAnnotation] == "true":
		return refused("it has the annotation " + live.PreventDeletionAnnotation)
	case live.IsKeptByHelm(u.GetAnnotations()[live.HelmPolicyAnnotation]):
		return refused(plan.KeptByHelmMessage)
	case isKept(u):
		return refused(plan.KeptByAnnotationMessage)
	}
	keepReason, err := a.checkDeletion(ctx, act, it.Ref)
	var customResources *CustomResourcesError
	switch {
	case errors.As(err, &customResources):
		return refused(customResources.Error())
	case err != nil:
		return a.errorResult(act, err)
	case keepReason != "":
		return refused(keepReason)
	}
	err = a.withWriteHook(ctx, WriteDelete, func() error {
		return a.resource(it).Delete(ctx, it.Name, deleteOptions(uid, u.GetResourceVersion()))
	})
	switch {
	case apierrors.IsConflict(err):
		return planAgain // it may have been protected since
	case err != nil && !apierrors.IsNotFound(err):
		return a.errorResult(act, err)
	}
	a.engine.deletions.record(a.ownerKey, act.Entry.ID, uid)
	e := act.Entry
	e.Hash = "" // so that it is created again in every drift mode
	return actionResult{entry: &e, change: &Change{Verb: plan.VerbDelete, Reason: plan.ReasonChanged, Ref: it.Ref,
		Message: "recreated: " + cause.Error()}}
}

// deleteHook deletes a completed hook according to its delete policy. Its entry stays completed.
func (a *executor) deleteHook(ctx context.Context, act *plan.Action) actionResult {
	r := a.delete(ctx, act, act.Item.Ref, act.Item.Mapping, act.Live.UID, act.Live.ResourceVersion)
	r.dropEntry, r.entry = false, nil
	return r
}

// dryRunCreate returns an error if the API server would not accept the object as a new one. This
// distinguishes an immutable field from an invalid one without parsing error messages.
func (a *executor) dryRunCreate(ctx context.Context, it *plan.Item) error {
	manifest, err := a.owner.Manifest(ctx, it)
	if err != nil {
		return err
	}
	b, err := applyPatch(manifest, it, a.owner.Key(), precondition{}, false, nil)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(b); err != nil {
		return err
	}
	name := it.Name
	u.SetName(name[:min(len(name), 50)] + "-probe")
	_, err = a.resource(it).
		Create(ctx, u, metav1.CreateOptions{FieldManager: live.FieldManager, DryRun: []string{metav1.DryRunAll}})
	return err
}
