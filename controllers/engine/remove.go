package engine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		if act.Entry.State == appsv1.EntryIntended || act.Reason == plan.ReasonNamespaceDeleted ||
			act.Reason == plan.ReasonMissing {
			return dropEntry // never created, deleted with its namespace, or deleted by others
		}
		return dropped(act.Ref(), act.Reason, "it is no longer managed: left as it is")
	}
	ref := act.Ref() // the plan drops entries with an invalid id
	m, err := a.target.Discovery.Resolve(ctx, ref.Group, act.Entry.Version, ref.Kind)
	if err != nil {
		return a.removeUnserved(ctx, act, ref, err)
	}
	r := a.client.Resource(m.Resource).Namespace(ref.Namespace)
	switch {
	case act.Verb == plan.VerbRecord:
		return recordPreRemoveJob(act, ref)
	case act.Verb == plan.VerbRun:
		return a.runPreRemoveJob(ctx, act, ref, r)
	case act.Verb == plan.VerbWithdraw:
		return a.withdraw(ctx, act, ref, m)
	case act.Verb == plan.VerbHandOver:
		return a.handOverIfAllowed(ctx, act, ref, m)
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

// dropped returns the result for an object that no longer belongs to the owner.
func dropped(ref stacks.Ref, why plan.Reason, message string) actionResult {
	return actionResult{dropEntry: true, change: &Change{Verb: plan.VerbDrop, Reason: why, Ref: ref, Message: message}}
}

// hasOwnMark is true for an object with the owner's mark and this id.
func (a *executor) hasOwnMark(u *unstructured.Unstructured, id string) bool {
	return u.GetAnnotations()[live.MarkAnnotation] == live.Mark{Owner: a.ownerKey, ID: id}.String()
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
	return dropEntry
}

// confirm reads an object that the index does not know, because it is gone or has no mark of the
// owner, or whose changes the index does not observe, because it lost the label.
func (a *executor) confirm(ctx context.Context, act *plan.Action, ref stacks.Ref, m *meta.RESTMapping) actionResult {
	if act.Live == nil && act.Entry.UID != "" && a.engine.deletions.get(a.ownerKey, act.Entry.ID) == act.Entry.UID {
		return a.recordGone(act, ref, act.Entry.UID) // we deleted it, and the index observed that it is gone
	}
	r := a.client.Resource(m.Resource).Namespace(ref.Namespace)
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return a.recordGone(act, ref, act.Entry.UID)
	case err != nil:
		return a.errorResult(act, err)
	}
	ours := a.hasOwnMark(u, act.Entry.ID)
	if !ours && act.Entry.State == appsv1.EntryIntended {
		return dropEntry // never ours
	}
	if !ours || (act.Entry.State != appsv1.EntryIntended && act.Entry.UID != u.GetUID()) {
		return dropped(ref, plan.ReasonOwnedByOther, "it lost its mark or was recreated: left as it is")
	}
	if u.GetDeletionTimestamp() != nil {
		return actionResult{err: beingDeleted(u)}
	}
	policies := a.owner.Policies()
	keepReason := policies.KeepReason(&act.Entry, ref)
	switch {
	case act.Verb == plan.VerbRelease:
	case act.Entry.State == appsv1.EntryAdopted || u.GetAnnotations()[live.AdoptedAnnotation] != "":
		act.Message = "it existed before"
	case keepReason != "":
		act.Message = keepReason
	case live.IsKeptByHelm(u.GetAnnotations()[live.HelmPolicyAnnotation]):
		act.Message = plan.KeptByHelmMessage
	case a.keeps(&policies, act, u):
		act.Message = plan.KeptByAnnotationMessage
	case u.GetAnnotations()[live.PreventDeletionAnnotation] == "true":
		return actionResult{err: &plan.ProtectedError{Ref: ref}}
	default:
		return a.delete(ctx, act, ref, m, u.GetUID(), u.GetResourceVersion())
	}
	return a.release(ctx, act, ref, r, u.GetUID())
}

// isKept is true for an object that annotations keep in some removals.
func isKept(u *unstructured.Unstructured) bool {
	policy := stacks.ObjectPolicyOf(u.Object)
	return policy.KeptWhenPruned || policy.KeptWhenDeleted
}

// keeps reports whether annotations keep an object in the removal of an action.
func (a *executor) keeps(p *plan.Policies, act *plan.Action, u *unstructured.Unstructured) bool {
	policy := stacks.ObjectPolicyOf(u.Object)
	if a.teardown || p.RequestFor(&act.Entry) != nil {
		return policy.KeptWhenDeleted
	}
	return policy.KeptWhenPruned
}

// delete deletes exactly the object with the uid and the version on which the plan is based: the
// index may not know yet that the object was protected since. The entry stays until the API server
// confirms that the object is gone.
func (a *executor) delete(ctx context.Context, act *plan.Action, ref stacks.Ref, m *meta.RESTMapping, uid types.UID,
	version string) actionResult {
	r := a.client.Resource(m.Resource).Namespace(ref.Namespace)
	keepReason, err := a.checkDeletion(ctx, act, ref)
	switch {
	case err != nil && isFatal(err):
		return actionResult{fatal: err}
	case err != nil:
		return actionResult{err: err}
	case keepReason != "":
		act.Message = keepReason
		return a.release(ctx, act, ref, r, uid)
	}
	propagation := metav1.DeletePropagationBackground
	if act.Reason == plan.ReasonReplaced || ref.Group == "batch" && ref.Kind == "Job" {
		propagation = metav1.DeletePropagationForeground // what depends on that starts when its Pods are gone, too
	}
	defer a.target.Index.BeginDelete(ref, uid)()
	var gone bool
	for try := 1; ; try++ {
		err = a.withWriteHook(ctx, WriteDelete, func() (err error) {
			gone, err = a.client.delete(ctx, m, ref, uid, version, propagation)
			return err
		})
		if !apierrors.IsConflict(err) || try == maxAttempts {
			break
		}
		var outcome *actionResult
		if version, outcome = a.recheckDeletion(ctx, act, ref, r, uid); outcome != nil {
			return *outcome
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return a.recordGone(act, ref, uid)
	case apierrors.IsConflict(err):
		return planAgain
	case err != nil:
		return a.errorResult(act, err)
	}
	change := &Change{Verb: plan.VerbDelete, Reason: act.Reason, Ref: ref}
	if gone {
		result := a.recordGone(act, ref, uid)
		result.change = change
		return result
	}
	a.engine.deletions.record(a.ownerKey, act.Entry.ID, uid)
	e := act.Entry
	e.UID = uid
	return actionResult{entry: &e, change: change}
}

// recheckDeletion reads an object that changed since its deletion was planned. It returns the new
// version if the deletion is still valid, for example when only the status changed. Else it returns
// the result of the deletion; the next round plans with the new state in the index.
func (a *executor) recheckDeletion(ctx context.Context, act *plan.Action, ref stacks.Ref, r dynamic.ResourceInterface,
	uid types.UID) (version string, outcome *actionResult) {
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
	if l := act.Live; l == nil || o.Deleting || o.Protected != l.Protected || o.KeptByHelm != l.KeptByHelm ||
		o.KeptWhenPruned != l.KeptWhenPruned || o.KeptWhenDeleted != l.KeptWhenDeleted ||
		o.Adopted != l.Adopted || o.Mark != l.Mark {
		return "", &actionResult{replan: true}
	}
	return o.ResourceVersion, nil
}

// recordGone records that an object is gone.
func (a *executor) recordGone(act *plan.Action, ref stacks.Ref, uid types.UID) actionResult {
	a.target.Index.ObserveGone(ref, uid)
	a.engine.deletions.reset(a.ownerKey, act.Entry.ID)
	return dropEntry
}

// release removes our label and marks from an object, and leaves the rest as it is.
func (a *executor) release(ctx context.Context, act *plan.Action, ref stacks.Ref, r dynamic.ResourceInterface,
	uid types.UID) actionResult {
	annotations := map[string]any{live.MarkAnnotation: nil, live.AdoptedAnnotation: nil, live.ReadyExprAnnotation: nil,
		live.IgnoreAnnotation: nil, live.SensitiveAnnotation: nil}
	if act.Live != nil && act.Live.Reported != nil {
		annotations[live.ReportAnnotation] = nil
	}
	u, err := a.mergePatch(ctx, WriteRelease, r, ref.Name, map[string]any{"metadata": map[string]any{
		"uid": uid, "labels": map[string]any{live.OwnerLabel: nil}, "annotations": annotations}})
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

// beingDeleted returns the error for an object whose deletion is in progress.
func beingDeleted(u *unstructured.Unstructured) *plan.BeingDeletedError {
	o, err := live.Project(u)
	if err != nil {
		return &plan.BeingDeletedError{Ref: stacks.Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(),
			Name: u.GetName()}, Finalizers: u.GetFinalizers()}
	}
	return plan.NewBeingDeletedError(&o)
}
