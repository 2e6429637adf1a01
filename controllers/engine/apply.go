package engine

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// act does one action for a wanted object.
func (a *actor) act(ctx context.Context, act *Action) result {
	switch {
	case act.Verb == Record:
		e := act.Entry
		e.Component, e.Wave, e.PreRemove, e.Leaving = act.Item.Component, act.Item.Wave, act.Item.PreRemove, false
		if act.Reason == Finished {
			e.State = appsv1.EntryDone
		}
		return result{entry: &e}
	case act.Item.Shared:
		return a.share(ctx, act)
	case act.Verb == Create:
		return a.create(ctx, act)
	case act.Verb == Delete:
		return a.expire(ctx, act)
	case act.Reason == Spent:
		return a.recreate(ctx, act, act.Live.UID, errSpent)
	default:
		return a.update(ctx, act)
	}
}

func (a *actor) resource(it *Item) dynamic.ResourceInterface {
	r := a.client.Resource(it.Mapping.Resource)
	if it.Namespace == "" {
		return r
	}
	return r.Namespace(it.Namespace)
}

// apply is one server-side apply. Conflicts are won: what the repository says
// and others may not change is ours.
func (a *actor) apply(ctx context.Context, kind WriteKind, it *Item, pre precondition, adopted bool, kept []live.KeptField) (*unstructured.Unstructured, error) {
	manifest, err := a.owner.Manifest(ctx, it)
	if err != nil {
		return nil, err
	}
	b, err := body(manifest, it, a.owner.Key(), pre, adopted, kept)
	if err != nil {
		return nil, err
	}
	var u *unstructured.Unstructured
	err = a.at(ctx, kind, func() (err error) {
		u, err = a.resource(it).Patch(ctx, it.Name, types.ApplyPatchType, b,
			metav1.PatchOptions{FieldManager: live.FieldManager, Force: ptr.To(true)})
		return err
	})
	return u, err
}

// create sends an object that should not be there. If it is, one GET tells whose it is.
func (a *actor) create(ctx context.Context, act *Action) result {
	if r := a.enter(ctx, act); r != nil {
		return *r
	}
	u, err := a.apply(ctx, WriteCreate, act.Item, precondition{absent: true}, false, nil)
	switch {
	case err == nil:
		return a.applied(act, u, appsv1.EntryApplied)
	case apierrors.IsConflict(err):
		return a.meet(ctx, act)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return a.terminates(ctx, act, err)
	}
	if ns := a.lostNamespace(act.Item, err); ns != "" {
		return result{again: true, lost: ns}
	}
	return a.failed(act, err)
}

// meet decides about an object that was there before us.
func (a *actor) meet(ctx context.Context, act *Action) result {
	it := act.Item
	u, err := a.resource(it).Get(ctx, it.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return result{again: true} // it went in between
	}
	if err != nil {
		return a.failed(act, err)
	}
	state, err := claim(a.owner.Key(), it.Ref, &act.Entry, a.owner.Policies().Adopt, u)
	if err != nil {
		if a.watched(u) {
			return result{again: true} // refused without waiting out anything
		}
		return result{err: err}
	}
	if u.GetDeletionTimestamp() != nil {
		return result{err: leaving(u)}
	}
	uid, by := u.GetUID(), ""
	if a.takesOver(state) {
		by = Manager(u)
		u, err = a.takeFields(ctx, it, u)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return result{again: true}
		}
		if err != nil {
			return a.failed(act, err)
		}
	}
	kept, err := keptFields(u, it.Ignore)
	if err != nil {
		return a.failed(act, err)
	}
	u, err = a.apply(ctx, WriteUpdate, it, precondition{uid: uid, version: u.GetResourceVersion()}, state == appsv1.EntryAdopted, kept)
	if err != nil {
		return a.updateFailed(ctx, act, uid, state, err)
	}
	r := a.applied(act, u, state)
	if by != "" && r.change != nil {
		r.change.Note = "taken over from " + by
	}
	return r
}

// maxTries is how often an object is read and sent again that changes meanwhile.
const maxTries = 5

// update changes an object that is there and ours.
func (a *actor) update(ctx context.Context, act *Action) result {
	it, l := act.Item, *act.Live
	if now, ok := a.target.Index.Get(it.Ref); ok && now.UID == l.UID {
		l = now // others may have written since the plan was made
	}
	state := appsv1.EntryApplied
	if act.Entry.State == appsv1.EntryAdopted || l.Adopted {
		state = appsv1.EntryAdopted
	}
	kept, version := l.Kept, l.ResourceVersion
	reclaims := l.Claimed && a.takesOver(state)
	read := reclaims || needsRead(it, &l)
	for try := 1; ; try++ {
		if read {
			u, err := a.resource(it).Get(ctx, it.Name, metav1.GetOptions{})
			if err != nil {
				return a.updateFailed(ctx, act, l.UID, state, err)
			}
			if u.GetUID() != l.UID {
				return a.look(ctx, act, l.UID)
			}
			if reclaims {
				if u, err = a.takeFields(ctx, it, u); err != nil {
					return a.updateFailed(ctx, act, l.UID, state, err)
				}
			}
			if kept, err = keptFields(u, it.Ignore); err != nil {
				return a.failed(act, err)
			}
			version = u.GetResourceVersion()
		}
		u, err := a.apply(ctx, WriteUpdate, it, precondition{uid: l.UID, version: version}, state == appsv1.EntryAdopted, kept)
		if apierrors.IsConflict(err) && try < maxTries {
			read = true
			continue
		}
		if err != nil {
			return a.updateFailed(ctx, act, l.UID, state, err)
		}
		return a.applied(act, u, state)
	}
}

// applied records the answer to an apply: the baseline has defaults and
// webhooks in it.
func (a *actor) applied(act *Action, u *unstructured.Unstructured, state appsv1.EntryState) result {
	o, err := a.target.Index.Observe(u)
	if err != nil {
		return a.failed(act, err)
	}
	a.engine.deletions.reset(a.owner.Key().String(), act.Entry.ID)
	if corrects(act) {
		a.engine.corrections.record(a.owner.Key().String(), act.Entry.ID, a.engine.clock.Now())
	}
	it := act.Item
	change := &Change{Verb: act.Verb, Reason: act.Reason, Ref: it.Ref}
	if act.Reason == Drifted && act.Live != nil && act.Live.OtherManager != "" {
		change.Note = "changed by " + act.Live.OtherManager
	}
	if state == appsv1.EntryAdopted && act.Entry.State != appsv1.EntryAdopted {
		change.Note = "it was there before and is adopted"
	}
	return result{change: change, entry: &appsv1.InventoryEntry{
		ID: it.ID, Version: it.Version, UID: u.GetUID(), Component: it.Component, Wave: it.Wave,
		PreRemove: it.PreRemove, State: state, Hash: it.Want, Baseline: o.Owned,
	}}
}

// updateFailed finds out why a change of a known object was refused.
func (a *actor) updateFailed(ctx context.Context, act *Action, uid types.UID, state appsv1.EntryState, err error) result {
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return a.look(ctx, act, uid)
	case apierrors.IsInvalid(err):
		if act.Reason == Drifted {
			switch taken, terr := a.takeBack(ctx, act, uid, err); {
			case taken, apierrors.IsConflict(terr), apierrors.IsNotFound(terr):
				return result{again: true}
			case terr != nil:
				return a.failed(act, terr)
			}
		}
		return a.immutable(ctx, act, uid, state, err)
	default:
		return a.failed(act, err)
	}
}

// look reads an object that is not what it was taken for, so that the next
// round knows.
func (a *actor) look(ctx context.Context, act *Action, uid types.UID) result {
	u, err := a.resource(act.Item).Get(ctx, act.Item.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		a.target.Index.ObserveGone(act.Item.Ref, uid)
		return result{again: true}
	case err != nil:
		return a.failed(act, err)
	}
	if u.GetUID() != uid {
		a.target.Index.ObserveGone(act.Item.Ref, uid)
	}
	if _, err := a.target.Index.Observe(u); err != nil {
		return a.failed(act, err)
	}
	return result{again: true}
}

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

// failed sorts the errors of requests: those that end the pass from those of one object.
func (a *actor) failed(act *Action, err error) result {
	if fatal(err) {
		return result{fatal: err}
	}
	return result{err: &ObjectError{Ref: refOf(act), Verb: string(act.Verb), Err: err}}
}
