package engine

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// immutable recreates an object where that is allowed: with force, and hooks
// always, but never one that was there before us or that nothing may delete. It
// asks first whether the new one would be accepted.
func (a *actor) immutable(ctx context.Context, act *Action, uid types.UID, state appsv1.EntryState, cause error) result {
	it, policies := act.Item, a.owner.Policies()
	if err := a.probe(ctx, it); err != nil {
		return a.failed(act, cause)
	}
	adopted := state == appsv1.EntryAdopted
	if adopted || (!policies.Force && it.Hook == nil) {
		return result{err: &ImmutableError{Ref: it.Ref, Adopted: adopted, Kept: policies.protects(it.Ref), Err: cause}}
	}
	r := a.recreate(ctx, act, uid, cause)
	if r.change != nil {
		r.change.Note = "recreated: it can't be changed in place"
	}
	return r
}

// errSpent is why a Job is made anew that ran for nothing.
var errSpent = errors.New("it ran before a removal that did not happen")

// recreate deletes an object, which the next round finds missing. It is read
// before: a delete that the index does not know to be forbidden can't be undone.
func (a *actor) recreate(ctx context.Context, act *Action, uid types.UID, cause error) result {
	it := act.Item
	kept := func(why string) result { return result{err: &ImmutableError{Ref: it.Ref, Kept: why, Err: cause}} }
	policies := a.owner.Policies()
	if why := policies.protects(it.Ref); why != "" {
		return kept(why)
	}
	u, err := a.resource(it).Get(ctx, it.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && u.GetUID() != uid:
		a.target.Index.ObserveGone(it.Ref, uid)
		return result{again: true}
	case err != nil:
		return a.failed(act, err)
	case u.GetAnnotations()[live.PreventDeletionAnnotation] == "true":
		return kept("it has the annotation " + live.PreventDeletionAnnotation)
	}
	leave, err := a.spare(ctx, act, it.Ref)
	var taken *CustomResourcesError
	switch {
	case errors.As(err, &taken):
		return kept(taken.Error())
	case err != nil:
		return a.failed(act, err)
	case leave != "":
		return kept(leave)
	}
	err = a.at(ctx, WriteDelete, func() error {
		return a.resource(it).Delete(ctx, it.Name, deleteOptions(uid, u.GetResourceVersion()))
	})
	switch {
	case apierrors.IsConflict(err):
		return result{again: true} // somebody may have protected it
	case err != nil && !apierrors.IsNotFound(err):
		return a.failed(act, err)
	}
	a.engine.deletions.record(a.owner.Key().String(), act.Entry.ID, uid)
	e := act.Entry
	e.Hash = "" // whatever the drift mode, it is to be made anew
	return result{entry: &e, change: &Change{Verb: Delete, Reason: Changed, Ref: it.Ref, Note: "recreated: " + errSpent.Error()}}
}

// expire deletes a hook that is done, as its policy says. It stays done.
func (a *actor) expire(ctx context.Context, act *Action) result {
	r := a.delete(ctx, act, act.Item.Ref, act.Item.Mapping, act.Live.UID, act.Live.ResourceVersion)
	r.drop, r.entry = false, nil
	return r
}

// probe asks whether an object would be accepted if it were new. The answer
// tells an immutable field from an invalid one without reading error texts.
func (a *actor) probe(ctx context.Context, it *Item) error {
	manifest, err := a.owner.Manifest(ctx, it)
	if err != nil {
		return err
	}
	b, err := body(manifest, it, a.owner.Key(), precondition{}, false, nil)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(b); err != nil {
		return err
	}
	name := it.Name
	u.SetName(name[:min(len(name), 50)] + "-probe")
	_, err = a.resource(it).Create(ctx, u, metav1.CreateOptions{FieldManager: live.FieldManager, DryRun: []string{metav1.DryRunAll}})
	return err
}
