package engine

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// operation executes one action.
type operation func(*executor, context.Context, *plan.Action) actionResult

// operationOf returns the operation of an action.
func operationOf(act *plan.Action) operation {
	switch {
	case act.Verb == plan.VerbCollect:
		return (*executor).collectResult
	case act.Item == nil, act.Verb == plan.VerbWithdraw:
		return (*executor).executeRemoval
	case act.Verb == plan.VerbRecord:
		return (*executor).recordObserved
	case act.Item.Contribute:
		return (*executor).contribute
	case act.Item.Shared:
		return (*executor).shareNamespace
	case act.Verb == plan.VerbCreate:
		return (*executor).create
	case act.Verb == plan.VerbDelete:
		return (*executor).deleteHook
	case act.Reason == plan.ReasonRemovalCanceled, act.Reason == plan.ReasonRunsAgain:
		return (*executor).runAgain
	default:
		return (*executor).update
	}
}

// recordObserved records what was observed of an object.
func (a *executor) recordObserved(_ context.Context, act *plan.Action) actionResult {
	e := act.Entry
	e.Component, e.Wave, e.PreRemove, e.Leaving = act.Item.Component, act.Item.Wave, act.Item.PreRemove, false
	e.RetainedAt = nil
	switch act.Reason {
	case plan.ReasonFinished:
		e.State = appsv1.EntryDone
	case plan.ReasonReclaimed: // a run that was created before a crash
		e.State, e.UID, e.Baseline = appsv1.EntryApplied, act.Live.UID, act.Live.OwnedHash
		a.engine.creates.reset(a.ownerKey, e.ID)
	}
	return actionResult{entry: &e}
}

// runAgain recreates a Job or a Pod, so that it runs again.
func (a *executor) runAgain(ctx context.Context, act *plan.Action) actionResult {
	cause := errRemovalCanceled
	if act.Reason == plan.ReasonRunsAgain {
		cause = errRunsAgain
	}
	return a.recreate(ctx, act, act.Live.UID, cause)
}

func (a *executor) resource(it *plan.Item) dynamic.ResourceInterface {
	return a.client.Resource(it.Mapping.Resource).Namespace(it.Namespace)
}

// apply sends one server-side apply request. It forces conflicts: the fields of the manifest that
// others are not allowed to change are ours.
func (a *executor) apply(ctx context.Context, kind WriteKind, it *plan.Item, pre precondition, adopted bool,
	kept []live.KeptField) (*unstructured.Unstructured, error) {
	manifest, err := a.owner.Manifest(ctx, it)
	if err != nil {
		return nil, err
	}
	b, err := applyPatch(manifest, it, a.owner.Key(), pre, adopted, kept)
	if err != nil {
		return nil, err
	}
	if err := a.beforeWrite(ctx, kind); err != nil {
		return nil, err
	}
	u, err := a.resource(it).Patch(ctx, it.Name, types.ApplyPatchType, b,
		metav1.PatchOptions{FieldManager: live.FieldManager, Force: ptr.To(true)})
	return u, a.afterWrite(ctx, kind, err)
}

// create creates an object. If it exists already, a GET finds out who manages it.
func (a *executor) create(ctx context.Context, act *plan.Action) actionResult {
	if r := a.checkNamespace(ctx, act); r != nil {
		return *r
	}
	u, err := a.apply(ctx, WriteCreate, act.Item, precondition{absent: true}, false, nil)
	a.recordCreate(act.Entry.ID, err)
	switch {
	case err == nil:
		return a.recordApplied(act, u, appsv1.EntryApplied)
	case apierrors.IsConflict(err):
		return a.applyExisting(ctx, act)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return a.handleTerminatingNamespace(ctx, act, err)
	case isInvalidName(err):
		return actionResult{err: &ObjectError{Ref: act.Ref(), Verb: string(act.Verb),
			Err: plan.NewInvalidObjectError("%s", redactedMessage(act.Ref(), err))}}
	}
	if ns := a.missingNamespace(act.Item, err); ns != "" {
		return actionResult{replan: true, lostNamespace: ns}
	}
	return a.errorResult(act, err)
}

// isInvalidName is true for the answer to an object whose name its kind does not allow.
func isInvalidName(err error) bool {
	details := errorDetails(err)
	return details != nil && apierrors.IsInvalid(err) && slices.ContainsFunc(details.Causes,
		func(c metav1.StatusCause) bool { return c.Field == "metadata.name" || c.Field == "metadata.namespace" })
}

// applyExisting claims and applies an object that existed before the create request.
func (a *executor) applyExisting(ctx context.Context, act *plan.Action) actionResult {
	it := act.Item
	u, err := a.resource(it).Get(ctx, it.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return planAgain // deleted since the create request
	}
	if err != nil {
		return a.errorResult(act, err)
	}
	if it.IsCreateOnly() {
		return a.leaveExisting(act, u)
	}
	state, err := claim(a.owner.Key(), it.Ref, &act.Entry, a.owner.Policies().Adopt, u)
	if err != nil {
		if a.observeOtherOwner(u) {
			return planAgain // the next plan refuses it, without a back-off
		}
		return actionResult{err: err}
	}
	if u.GetDeletionTimestamp() != nil {
		return actionResult{err: beingDeleted(u)}
	}
	uid, by := u.GetUID(), ""
	switch {
	case it.Runs() && a.hasOwnMark(u, it.ID):
		return a.observe(act, u, planAgain)
	case it.Runs() && a.takesOver(state):
		return a.recreate(ctx, act, uid, errRunsAgain)
	case it.Runs():
		return actionResult{err: &plan.OwnedByOtherError{Ref: it.Ref, By: cmp.Or(ManagerOf(u), "an unknown owner"),
			Hint: "delete it, or set spec.adopt to Always, so that the hook can run"}}
	case a.takesOver(state):
		if r := a.refuseChanged(ctx, act, u); r != nil {
			return *r
		}
		by = ManagerOf(u)
		u, err = a.migrateFieldManager(ctx, it, u)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return planAgain
		}
		if err != nil {
			return a.errorResult(act, err)
		}
	}
	kept, err := keptFields(u, it.Ignore)
	if err != nil {
		return a.errorResult(act, err)
	}
	u, err = a.apply(ctx, WriteUpdate, it, precondition{uid: uid, resourceVersion: u.GetResourceVersion()},
		state == appsv1.EntryAdopted, kept)
	a.recordCreate(act.Entry.ID, err) // the entry still has no uid
	if err != nil {
		return a.handleUpdateError(ctx, act, uid, state, err)
	}
	r := a.recordApplied(act, u, state)
	if by != "" && r.change != nil {
		r.change.Message = "taken over from " + by
	}
	return r
}

// maxAttempts is the maximum number of attempts for an object that changes between read and write.
const maxAttempts = 5

// update applies an existing object that is ours.
func (a *executor) update(ctx context.Context, act *plan.Action) actionResult {
	it, l := act.Item, *act.Live
	if now, ok := a.target.Index.Get(it.Ref); ok && now.UID == l.UID {
		l = now // another client may have changed it since the plan was made
	}
	state := appsv1.EntryApplied
	if act.Entry.State == appsv1.EntryAdopted || l.Adopted {
		state = appsv1.EntryAdopted
	}
	kept, version := l.KeptFields, l.ResourceVersion
	reclaims := l.TrackedByTool && a.takesOver(state)
	read := reclaims || mustReadKeptFields(it, &l)
	for try := 1; ; try++ {
		if read {
			u, err := a.resource(it).Get(ctx, it.Name, metav1.GetOptions{})
			if err != nil {
				return a.handleUpdateError(ctx, act, l.UID, state, err)
			}
			if u.GetUID() != l.UID {
				return a.refresh(ctx, act, l.UID)
			}
			if reclaims {
				if u, err = a.migrateFieldManager(ctx, it, u); err != nil {
					return a.handleUpdateError(ctx, act, l.UID, state, err)
				}
			}
			if kept, err = keptFields(u, it.Ignore); err != nil {
				return a.errorResult(act, err)
			}
			version = u.GetResourceVersion()
		}
		u, err := a.apply(ctx, WriteUpdate, it, precondition{uid: l.UID, resourceVersion: version},
			state == appsv1.EntryAdopted, kept)
		if apierrors.IsConflict(err) && try < maxAttempts {
			read = true
			continue
		}
		if err != nil {
			return a.handleUpdateError(ctx, act, l.UID, state, err)
		}
		return a.recordApplied(act, u, state)
	}
}

// recordApplied records the object that an apply request returned. The baseline thus includes
// defaults and the changes of webhooks.
func (a *executor) recordApplied(act *plan.Action, u *unstructured.Unstructured, state appsv1.EntryState) actionResult {
	o, err := a.target.Index.Observe(u)
	if err != nil {
		return a.errorResult(act, err)
	}
	a.engine.deletions.reset(a.ownerKey, act.Entry.ID)
	a.engine.creates.reset(a.ownerKey, act.Entry.ID)
	a.engine.done.reset(a.ownerKey, act.Entry.ID)
	a.engine.compared.reset(a.ownerKey, act.Entry.ID)
	it := act.Item
	if isCorrection(act) {
		a.engine.corrections.add(a.ownerKey, it.ID, a.engine.clock.Now())
	}
	if act.Verb == plan.VerbCreate && it.Hook == nil {
		a.engine.recreations.recordCreation(a.ownerKey, it.ID, it.ContentHash, a.engine.clock.Now())
	}
	change := &Change{Verb: act.Verb, Reason: act.Reason, Ref: it.Ref}
	if act.Reason == plan.ReasonDrifted && act.Live != nil && act.Live.OtherManager != "" {
		change.Message = "changed by " + act.Live.OtherManager
	}
	if state == appsv1.EntryAdopted && act.Entry.State != appsv1.EntryAdopted {
		change.Message = "it existed before and is adopted"
	}
	return actionResult{change: change, entry: &appsv1.InventoryEntry{
		ID: it.ID, Version: it.Version, UID: u.GetUID(), Component: it.Component, Wave: it.Wave,
		PreRemove: it.PreRemove, State: state, Hash: it.ContentHash, Baseline: o.OwnedHash,
	}}
}

// handleUpdateError finds out why the update of a known object failed, and how to continue.
func (a *executor) handleUpdateError(ctx context.Context, act *plan.Action, uid types.UID, state appsv1.EntryState,
	err error) actionResult {
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return a.refresh(ctx, act, uid)
	case apierrors.IsInvalid(err):
		if act.Reason == plan.ReasonDrifted {
			switch reclaimed, reclaimErr := a.reclaimListItems(ctx, act, uid, err); {
			case reclaimed, apierrors.IsConflict(reclaimErr), apierrors.IsNotFound(reclaimErr):
				return planAgain
			case reclaimErr != nil:
				return a.errorResult(act, reclaimErr)
			}
		}
		return a.recreateImmutable(ctx, act, uid, state, err)
	default:
		return a.errorResult(act, err)
	}
}

// refresh reads an object whose state differs from the index, so that the next round plans with its
// current state.
func (a *executor) refresh(ctx context.Context, act *plan.Action, uid types.UID) actionResult {
	u, err := a.resource(act.Item).Get(ctx, act.Item.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		a.target.Index.ObserveGone(act.Item.Ref, uid)
		return planAgain
	case err != nil:
		return a.errorResult(act, err)
	}
	if u.GetUID() != uid {
		a.target.Index.ObserveGone(act.Item.Ref, uid)
	}
	return a.observe(act, u, planAgain)
}

// observe adds an object to the index. It returns r, or the result of an error.
func (a *executor) observe(act *plan.Action, u *unstructured.Unstructured, r actionResult) actionResult {
	if _, err := a.target.Index.Observe(u); err != nil {
		return a.errorResult(act, err)
	}
	return r
}

// deleteOptions returns the options to delete exactly the object with the uid, and, unless it is
// empty, the resourceVersion.
func deleteOptions(uid types.UID, resourceVersion string) metav1.DeleteOptions {
	o := metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		Preconditions:     &metav1.Preconditions{UID: &uid},
	}
	if resourceVersion != "" {
		o.Preconditions.ResourceVersion = &resourceVersion
	}
	return o
}

// errorResult returns the result of a failed request: an error that ends the pass, or one of the
// object.
func (a *executor) errorResult(act *plan.Action, err error) actionResult {
	if isFatal(err) {
		return actionResult{fatal: err}
	}
	return actionResult{err: &ObjectError{Ref: act.Ref(), Verb: string(act.Verb), Err: err,
		Redact: a.owner.Policies().Redact}}
}
