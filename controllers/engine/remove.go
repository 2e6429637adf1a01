package engine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// executeRemoval executes an action that removes an object.
func (a *executor) executeRemoval(ctx context.Context, act *plan.Action) actionResult {
	if act.Verb == plan.VerbDrop {
		if act.Entry.State == appsv1.EntryIntended {
			return actionResult{dropEntry: true} // never created
		}
		return actionResult{dropEntry: true, change: &Change{Verb: plan.VerbDrop, Reason: act.Reason, Ref: act.Ref(), Message: "it is no longer managed: left as it is"}}
	}
	ref, err := stacks.ParseID(act.Entry.ID)
	if err != nil {
		return actionResult{dropEntry: true}
	}
	m, err := a.target.Discovery.Resolve(ctx, ref.Group, act.Entry.Version, ref.Kind)
	if err != nil {
		return a.removeUnserved(ctx, act, ref, err)
	}
	r := resourceFor(a.client, m, ref)
	switch {
	case act.Verb == plan.VerbRecord:
		return recordPreRemoveJob(act, ref)
	case act.Verb == plan.VerbRun:
		return a.runPreRemoveJob(ctx, act, ref, r)
	case act.Verb == plan.VerbHandOver:
		return a.handOver(ctx, act, ref, r)
	case act.Entry.State == appsv1.EntryShared:
		return a.unshareNamespace(ctx, act, ref, r)
	case act.Live == nil, act.Reason == plan.ReasonUnconfirmed:
		return a.confirm(ctx, act, ref, m)
	case act.Verb == plan.VerbRelease:
		return a.release(ctx, act, ref, r, act.Live.UID)
	default:
		return a.delete(ctx, act, ref, m, act.Live.UID, act.Live.ResourceVersion)
	}
}

// resourceFor returns the client for the resource and the namespace of an object.
func resourceFor(c dynamic.Interface, m *meta.RESTMapping, ref stacks.Ref) dynamic.ResourceInterface {
	r := c.Resource(m.Resource)
	if ref.Namespace == "" {
		return r
	}
	return r.Namespace(ref.Namespace)
}

// removeUnserved drops the entry of an object whose kind certainly no longer exists: the object was
// deleted with it.
func (a *executor) removeUnserved(ctx context.Context, act *plan.Action, ref stacks.Ref, cause error) actionResult {
	absent, err := a.target.Discovery.Absent(ctx, ref.GroupKind())
	if err != nil {
		return a.errorResult(act, err)
	}
	if !absent {
		return a.errorResult(act, cause)
	}
	return actionResult{dropEntry: true}
}

// confirm reads an object that the index does not know, because it is gone or has no mark of the
// owner, or whose changes the index does not observe, because it lost the label.
func (a *executor) confirm(ctx context.Context, act *plan.Action, ref stacks.Ref, m *meta.RESTMapping) actionResult {
	if act.Live == nil && act.Entry.UID != "" && a.engine.deletions.has(a.owner.Key().String(), act.Entry.ID, act.Entry.UID) {
		return a.recordGone(act, ref, act.Entry.UID) // we deleted it, and the index observed that it is gone
	}
	r := resourceFor(a.client, m, ref)
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return a.recordGone(act, ref, act.Entry.UID)
	case err != nil:
		return a.errorResult(act, err)
	}
	mark, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
	ours := err == nil && mark == live.Mark{Owner: a.owner.Key().String(), ID: act.Entry.ID}
	if !ours && act.Entry.State == appsv1.EntryIntended {
		return actionResult{dropEntry: true} // never ours
	}
	if !ours || (act.Entry.State != appsv1.EntryIntended && act.Entry.UID != u.GetUID()) {
		return actionResult{dropEntry: true, change: &Change{Verb: plan.VerbDrop, Reason: plan.ReasonOwnedByOther, Ref: ref, Message: "it lost its mark or was recreated: left as it is"}}
	}
	if u.GetDeletionTimestamp() != nil {
		return actionResult{err: beingDeleted(u)}
	}
	policies := a.owner.Policies()
	switch {
	case act.Verb == plan.VerbRelease:
	case act.Entry.State == appsv1.EntryAdopted || u.GetAnnotations()[live.AdoptedAnnotation] != "":
		act.Message = "it existed before"
	case policies.KeepReason(&act.Entry, ref) != "":
		act.Message = policies.KeepReason(&act.Entry, ref)
	case u.GetAnnotations()[live.PreventDeletionAnnotation] == "true":
		return actionResult{err: &plan.ProtectedError{Ref: ref}}
	default:
		return a.delete(ctx, act, ref, m, u.GetUID(), u.GetResourceVersion())
	}
	return a.release(ctx, act, ref, r, u.GetUID())
}

// delete deletes exactly the object with the uid and the version on which the plan is based: the
// index may not know yet that the object was protected since. The entry stays until the API server
// confirms that the object is gone.
func (a *executor) delete(ctx context.Context, act *plan.Action, ref stacks.Ref, m *meta.RESTMapping, uid types.UID, version string) actionResult {
	keepReason, err := a.checkDeletion(ctx, act, ref)
	switch {
	case err != nil && isFatal(err):
		return actionResult{fatal: err}
	case err != nil:
		return actionResult{err: err}
	case keepReason != "":
		act.Message = keepReason
		return a.release(ctx, act, ref, resourceFor(a.client, m, ref), uid)
	}
	defer a.target.Index.BeginDelete(ref, uid)()
	var gone bool
	for try := 1; ; try++ {
		err = a.withWriteHook(ctx, WriteDelete, func() (err error) {
			gone, err = a.client.Delete(ctx, m, ref, uid, version)
			return err
		})
		if !apierrors.IsConflict(err) || try == maxAttempts {
			break
		}
		var outcome *actionResult
		if version, outcome = a.recheckDeletion(ctx, act, ref, resourceFor(a.client, m, ref), uid); outcome != nil {
			return *outcome
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return a.recordGone(act, ref, uid)
	case apierrors.IsConflict(err):
		return actionResult{replan: true}
	case err != nil:
		return a.errorResult(act, err)
	}
	change := &Change{Verb: plan.VerbDelete, Reason: act.Reason, Ref: ref}
	if gone {
		r := a.recordGone(act, ref, uid)
		r.change = change
		return r
	}
	a.engine.deletions.record(a.owner.Key().String(), act.Entry.ID, uid)
	e := act.Entry
	e.UID = uid
	return actionResult{entry: &e, change: change}
}

// recheckDeletion reads an object that changed since its deletion was planned. It returns the new
// version if the deletion is still valid, for example when only the status changed. Else it returns
// the result of the deletion; the next round plans with the new state in the index.
func (a *executor) recheckDeletion(ctx context.Context, act *plan.Action, ref stacks.Ref, r dynamic.ResourceInterface, uid types.UID) (version string, outcome *actionResult) {
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", new(a.recordGone(act, ref, uid))
	case err != nil:
		return "", new(a.errorResult(act, err))
	case u.GetUID() != uid: // another object with the same name: not ours
		a.target.Index.ObserveGone(ref, uid)
		return "", &actionResult{replan: true}
	}
	o, err := a.target.Index.Observe(u)
	if err != nil {
		return "", new(a.errorResult(act, err))
	}
	if l := act.Live; l == nil || o.Deleting || o.Protected != l.Protected || o.Adopted != l.Adopted || o.Mark != l.Mark {
		return "", &actionResult{replan: true}
	}
	return o.ResourceVersion, nil
}

// recordGone records that an object is gone.
func (a *executor) recordGone(act *plan.Action, ref stacks.Ref, uid types.UID) actionResult {
	a.target.Index.ObserveGone(ref, uid)
	a.engine.deletions.reset(a.owner.Key().String(), act.Entry.ID)
	return actionResult{dropEntry: true}
}

// release removes our label and marks from an object, and leaves the rest as it is.
func (a *executor) release(ctx context.Context, act *plan.Action, ref stacks.Ref, r dynamic.ResourceInterface, uid types.UID) actionResult {
	u, err := a.mergePatch(ctx, WriteRelease, r, ref.Name, map[string]any{"metadata": map[string]any{
		"uid":    uid,
		"labels": map[string]any{live.OwnerLabel: nil},
		"annotations": map[string]any{live.MarkAnnotation: nil, live.AdoptedAnnotation: nil,
			live.ReadyExprAnnotation: nil, live.IgnoreAnnotation: nil},
	}})
	switch {
	case err == nil:
		a.target.Index.ObserveReleased(ref, uid, u.GetResourceVersion())
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		a.target.Index.ObserveGone(ref, uid)
	default:
		return a.errorResult(act, err)
	}
	return actionResult{dropEntry: true, change: &Change{Verb: plan.VerbRelease, Reason: act.Reason, Ref: ref,
		Message: "released: " + act.Message}}
}
