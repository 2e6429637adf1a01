package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Annotations of namespaces that owners share.
const (
	// createdByAnnotation names the installation that made the namespace.
	createdByAnnotation = "ksctl.com/created-by"
	// usedByPrefix and a hash of the owner's key is an annotation per user.
	usedByPrefix = "used-by.ksctl.com/"
)

// sharedHash marks the entry of a shared namespace that was seen to be there.
const sharedHash = "shared"

func usedBy(owner OwnerKey) string {
	sum := sha256.Sum256([]byte(owner.String()))
	return usedByPrefix + hex.EncodeToString(sum[:8])
}

// share makes a namespace if it is missing, and notes on it that the owner uses it.
func (a *actor) share(ctx context.Context, act *Action) result {
	it, key := act.Item, a.owner.Key()
	r := a.client.Resource(it.Mapping.Resource)
	obj := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": it.Name, "resourceVersion": "1",
		"annotations": map[string]any{createdByAnnotation: key.Installation, usedBy(key): key.String()},
	}}
	b, err := json.Marshal(obj)
	if err != nil {
		return a.failed(act, err)
	}
	var u *unstructured.Unstructured
	err = a.at(ctx, WriteCreate, func() (err error) {
		u, err = r.Patch(ctx, it.Name, types.ApplyPatchType, b, metav1.PatchOptions{FieldManager: live.FieldManager, Force: ptr.To(true)})
		return err
	})
	change := &Change{Verb: Create, Reason: NewObject, Ref: it.Ref}
	if apierrors.IsConflict(err) {
		change = nil
		err = a.at(ctx, WriteUpdate, func() (err error) {
			u, err = a.annotate(ctx, r, it.Name, "", map[string]any{usedBy(key): key.String()})
			return err
		})
	}
	if apierrors.IsForbidden(err) {
		// Never refused: an account without rights to namespaces may use one that is there.
		var rerr error
		if u, rerr = r.Get(ctx, it.Name, metav1.GetOptions{}); rerr != nil {
			return a.failed(act, errors.Join(err, rerr))
		}
		err = nil
	}
	if err != nil {
		return a.failed(act, err)
	}
	if u.GetDeletionTimestamp() != nil {
		return result{err: leaving(u)}
	}
	return result{change: change, entry: &appsv1.InventoryEntry{ID: it.ID, Version: it.Version, UID: u.GetUID(),
		Component: it.Component, Wave: it.Wave, State: appsv1.EntryShared, Hash: sharedHash}}
}

func (a *actor) annotate(ctx context.Context, r dynamic.ResourceInterface, name, version string, ann map[string]any) (*unstructured.Unstructured, error) {
	md := map[string]any{"annotations": ann}
	if version != "" {
		md["resourceVersion"] = version
	}
	b, err := json.Marshal(map[string]any{"metadata": md})
	if err != nil {
		return nil, err
	}
	return r.Patch(ctx, name, types.MergePatchType, b, metav1.PatchOptions{FieldManager: live.FieldManager})
}

// unshare takes the owner off a namespace; the last user removes it, if one of
// them made it and nothing foreign is in it.
func (a *actor) unshare(ctx context.Context, act *Action, ref stacks.Ref, r dynamic.ResourceInterface) result {
	for try := 1; ; try++ {
		if res := a.tryUnshare(ctx, act, ref, r); !res.again || try == maxTries {
			return res
		}
	}
}

func (a *actor) tryUnshare(ctx context.Context, act *Action, ref stacks.Ref, r dynamic.ResourceInterface) result {
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return result{drop: true}
	case err != nil:
		return a.failed(act, err)
	case act.Entry.UID != "" && u.GetUID() != act.Entry.UID:
		return result{drop: true} // another namespace of that name
	case u.GetDeletionTimestamp() != nil:
		return result{err: leaving(u)}
	}
	keep := act.Message // why it is released, if it is
	if act.Verb != Release {
		var held *ProtectedError
		switch keep, err = a.keepNamespace(ctx, u); {
		case errors.As(err, &held):
			return result{err: held}
		case err != nil:
			return a.failed(act, err)
		}
	}
	if keep != "" {
		err = a.at(ctx, WriteRelease, func() error {
			// The resourceVersion makes sure that of two users that go at once one
			// finds itself to be the last.
			_, err := a.annotate(ctx, r, ref.Name, u.GetResourceVersion(), map[string]any{usedBy(a.owner.Key()): nil})
			return err
		})
		if apierrors.IsConflict(err) {
			return result{again: true}
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return a.failed(act, err)
		}
		return result{drop: true, change: &Change{Verb: Release, Reason: Removed, Ref: ref, Note: "kept: " + keep}}
	}
	// The resourceVersion makes sure that no user joined since it was read.
	err = a.at(ctx, WriteDelete, func() error {
		return r.Delete(ctx, ref.Name, deleteOptions(u.GetUID(), u.GetResourceVersion()))
	})
	switch {
	case apierrors.IsNotFound(err):
		return result{drop: true}
	case apierrors.IsConflict(err):
		return result{again: true}
	case err != nil:
		return a.failed(act, err)
	}
	// Not watched: looked at again until it is gone.
	return result{err: &LeavingError{Ref: ref}, change: &Change{Verb: Delete, Reason: Removed, Ref: ref}}
}

// keepNamespace says why a namespace must stay; empty when it may go. The error is
// a *ProtectedError when a person says that it may not.
func (a *actor) keepNamespace(ctx context.Context, u *unstructured.Unstructured) (string, error) {
	key := a.owner.Key()
	if u.GetAnnotations()[createdByAnnotation] != key.Installation {
		return "it was there before us", nil
	}
	for k, v := range u.GetAnnotations() {
		if strings.HasPrefix(k, usedByPrefix) && k != usedBy(key) {
			return OwnerName(v) + " uses it", nil
		}
	}
	if u.GetAnnotations()[live.PreventDeletionAnnotation] == "true" {
		return "", &ProtectedError{Ref: stacks.Ref{Kind: "Namespace", Name: u.GetName()}}
	}
	return a.foreign(ctx, u.GetName())
}

// lostNamespace returns the entry of the shared namespace whose absence made a
// create fail; empty when that was not the cause.
func (a *actor) lostNamespace(it *Item, err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return ""
	}
	if d := status.Status().Details; d == nil || d.Kind != "namespaces" {
		return ""
	}
	if e := a.sharedEntry(it.Namespace); e != nil {
		return e.ID
	}
	return ""
}

// sharedEntry is that of a shared namespace which was seen to be there; nil when
// there is none.
func (a *actor) sharedEntry(namespace string) *appsv1.InventoryEntry {
	e, ok := a.owner.Inventory().Get(sharedNamespace(namespace).ID())
	if !ok || e.State != appsv1.EntryShared || e.Hash == "" {
		return nil
	}
	return &e
}
