package engine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// remove does one action for an object that is to go.
func (a *actor) remove(ctx context.Context, act *Action) result {
	if act.Verb == Drop {
		if act.Entry.State == appsv1.EntryIntended {
			return result{drop: true} // it never was
		}
		return result{drop: true, change: &Change{Verb: Drop, Reason: act.Reason, Ref: refOf(act), Note: "no longer ours: left as it is"}}
	}
	ref, err := stacks.ParseID(act.Entry.ID)
	if err != nil {
		return result{drop: true}
	}
	m, err := a.target.Discovery.Resolve(ctx, ref.Group, act.Entry.Version, ref.Kind)
	if err != nil {
		return a.removeUnserved(ctx, act, ref, err)
	}
	r := resourceAt(a.client, m, ref)
	switch {
	case act.Verb == Record:
		return ranBefore(act, ref)
	case act.Verb == Run:
		return a.run(ctx, act, ref, r)
	case act.Verb == HandOver:
		return a.handOver(ctx, act, ref, r)
	case act.Entry.State == appsv1.EntryShared:
		return a.unshare(ctx, act, ref, r)
	case act.Live == nil, act.Reason == Unsure:
		return a.confirm(ctx, act, ref, m)
	case act.Verb == Release:
		return a.release(ctx, act, ref, r, act.Live.UID)
	default:
		return a.delete(ctx, act, ref, m, act.Live.UID, act.Live.ResourceVersion)
	}
}

func resourceAt(c dynamic.Interface, m *meta.RESTMapping, ref stacks.Ref) dynamic.ResourceInterface {
	r := c.Resource(m.Resource)
	if ref.Namespace == "" {
		return r
	}
	return r.Namespace(ref.Namespace)
}

// removeUnserved drops objects of a kind that is certain to be gone: they went with it.
func (a *actor) removeUnserved(ctx context.Context, act *Action, ref stacks.Ref, cause error) result {
	absent, err := a.target.Discovery.Absent(ctx, ref.GroupKind())
	if err != nil {
		return a.failed(act, err)
	}
	if !absent {
		return a.failed(act, cause)
	}
	return result{drop: true}
}

// confirm reads an object that the index does not know: gone, or without the
// mark that makes it ours; or one that it hears nothing of.
func (a *actor) confirm(ctx context.Context, act *Action, ref stacks.Ref, m *meta.RESTMapping) result {
	if act.Live == nil && act.Entry.UID != "" && a.engine.deletions.uid(a.owner.Key().String(), act.Entry.ID) == act.Entry.UID {
		return a.gone(act, ref, act.Entry.UID) // we deleted it, and the index saw it go
	}
	r := resourceAt(a.client, m, ref)
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return a.gone(act, ref, act.Entry.UID)
	case err != nil:
		return a.failed(act, err)
	}
	mark, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
	ours := err == nil && mark == live.Mark{Owner: a.owner.Key().String(), ID: act.Entry.ID}
	if !ours && act.Entry.State == appsv1.EntryIntended {
		return result{drop: true} // it never was ours
	}
	if !ours || (act.Entry.State != appsv1.EntryIntended && act.Entry.UID != u.GetUID()) {
		return result{drop: true, change: &Change{Verb: Drop, Reason: Owned, Ref: ref, Note: "no longer marked as ours: left as it is"}}
	}
	if u.GetDeletionTimestamp() != nil {
		return result{err: leaving(u)}
	}
	policies := a.owner.Policies()
	switch {
	case act.Verb == Release:
	case act.Entry.State == appsv1.EntryAdopted || u.GetAnnotations()[live.AdoptedAnnotation] != "":
		act.Message = "it was there before us"
	case policies.keeps(&act.Entry, ref) != "":
		act.Message = policies.keeps(&act.Entry, ref)
	case u.GetAnnotations()[live.PreventDeletionAnnotation] == "true":
		return result{err: &ProtectedError{Ref: ref}}
	default:
		return a.delete(ctx, act, ref, m, u.GetUID(), u.GetResourceVersion())
	}
	return a.release(ctx, act, ref, r, u.GetUID())
}

// delete asks for deletion of exactly this object, as it was judged: a watch may not
// have told yet that somebody protects it. Its entry stays until the API server says
// that it is gone.
func (a *actor) delete(ctx context.Context, act *Action, ref stacks.Ref, m *meta.RESTMapping, uid types.UID, version string) result {
	leave, err := a.spare(ctx, act, ref)
	switch {
	case err != nil && fatal(err):
		return result{fatal: err}
	case err != nil:
		return result{err: err}
	case leave != "":
		act.Message = leave
		return a.release(ctx, act, ref, resourceAt(a.client, m, ref), uid)
	}
	defer a.target.Index.Deleting(ref, uid)()
	var gone bool
	for try := 1; ; try++ {
		err = a.at(ctx, WriteDelete, func() (err error) {
			gone, err = a.client.Delete(ctx, m, ref, uid, version)
			return err
		})
		if !apierrors.IsConflict(err) || try == maxTries {
			break
		}
		var other *result
		if version, other = a.asJudged(ctx, act, ref, resourceAt(a.client, m, ref), uid); other != nil {
			return *other
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return a.gone(act, ref, uid)
	case apierrors.IsConflict(err):
		return result{again: true}
	case err != nil:
		return a.failed(act, err)
	}
	change := &Change{Verb: Delete, Reason: act.Reason, Ref: ref}
	if gone {
		r := a.gone(act, ref, uid)
		r.change = change
		return r
	}
	a.engine.deletions.record(a.owner.Key().String(), act.Entry.ID, uid)
	e := act.Entry
	e.UID = uid
	return result{entry: &e, change: change}
}

// asJudged reads an object that changed since it was judged, and returns its version
// when it may go all the same, as one whose status changed. Else the next round judges
// what the index knows now.
func (a *actor) asJudged(ctx context.Context, act *Action, ref stacks.Ref, r dynamic.ResourceInterface, uid types.UID) (version string, other *result) {
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", new(a.gone(act, ref, uid))
	case err != nil:
		return "", new(a.failed(act, err))
	case u.GetUID() != uid: // another object of that name by now: not ours
		a.target.Index.ObserveGone(ref, uid)
		return "", &result{again: true}
	}
	o, err := a.target.Index.Observe(u)
	if err != nil {
		return "", new(a.failed(act, err))
	}
	if l := act.Live; l == nil || o.Deleting || o.Protected != l.Protected || o.Adopted != l.Adopted || o.Mark != l.Mark {
		return "", &result{again: true}
	}
	return o.ResourceVersion, nil
}

func (a *actor) gone(act *Action, ref stacks.Ref, uid types.UID) result {
	a.target.Index.ObserveGone(ref, uid)
	a.engine.deletions.reset(a.owner.Key().String(), act.Entry.ID)
	return result{drop: true}
}

// release takes our label and marks off and leaves the rest.
func (a *actor) release(ctx context.Context, act *Action, ref stacks.Ref, r dynamic.ResourceInterface, uid types.UID) result {
	u, err := a.merge(ctx, WriteRelease, r, ref.Name, map[string]any{"metadata": map[string]any{
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
		return a.failed(act, err)
	}
	return result{drop: true, change: &Change{Verb: Release, Reason: act.Reason, Ref: ref,
		Note: "released: " + act.Message}}
}
