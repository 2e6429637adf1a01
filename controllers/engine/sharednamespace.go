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

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Annotations of namespaces that owners share.
const (
	// createdByAnnotation is the installation that created the namespace.
	createdByAnnotation = "ksctl.com/created-by"
	// usedByPrefix with a hash of the owner's key is the annotation of each owner that uses the
	// namespace.
	usedByPrefix = "used-by.ksctl.com/"
)

// sharedHash is the hash in the entry of a shared namespace that was observed to exist.
const sharedHash = "shared"

// usedByAnnotation returns the annotation of an owner that uses a namespace.
func usedByAnnotation(owner plan.OwnerKey) string {
	sum := sha256.Sum256([]byte(owner.String()))
	return usedByPrefix + hex.EncodeToString(sum[:8])
}

// shareNamespace creates a namespace if it is missing, and adds the annotation that the owner uses
// it.
func (a *executor) shareNamespace(ctx context.Context, act *plan.Action) actionResult {
	it, key := act.Item, a.owner.Key()
	r := a.client.Resource(it.Mapping.Resource)
	obj := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": it.Name, "resourceVersion": "1",
		"annotations": map[string]any{createdByAnnotation: key.Installation, usedByAnnotation(key): key.String()},
	}}
	b, err := json.Marshal(obj)
	if err != nil {
		return a.errorResult(act, err)
	}
	u, err := a.patch(ctx, WriteCreate, r, it.Name, types.ApplyPatchType, b)
	change := &Change{Verb: plan.VerbCreate, Reason: plan.ReasonNew, Ref: it.Ref}
	if apierrors.IsConflict(err) {
		change = nil
		u, err = a.mergePatch(ctx, WriteUpdate, r, it.Name, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{usedByAnnotation(key): key.String()}}})
	}
	if apierrors.IsForbidden(err) {
		// Not an error: an account without permissions on namespaces may use an existing one.
		var rerr error
		if u, rerr = r.Get(ctx, it.Name, metav1.GetOptions{}); rerr != nil {
			return a.errorResult(act, errors.Join(err, rerr))
		}
		err = nil
	}
	if err != nil {
		return a.errorResult(act, err)
	}
	if u.GetDeletionTimestamp() != nil {
		return actionResult{err: beingDeleted(u)}
	}
	return actionResult{change: change, entry: &appsv1.InventoryEntry{ID: it.ID, Version: it.Version, UID: u.GetUID(),
		Component: it.Component, Wave: it.Wave, State: appsv1.EntryShared, Hash: sharedHash}}
}

// unshareNamespace removes the owner's annotation from a namespace. The last owner deletes the
// namespace, if this installation created it and it contains no foreign objects.
func (a *executor) unshareNamespace(ctx context.Context, act *plan.Action, ref stacks.Ref,
	r dynamic.ResourceInterface) actionResult {
	for try := 1; ; try++ {
		if res := a.tryUnshareNamespace(ctx, act, ref, r); !res.replan || try == maxAttempts {
			return res
		}
	}
}

func (a *executor) tryUnshareNamespace(ctx context.Context, act *plan.Action, ref stacks.Ref,
	r dynamic.ResourceInterface) actionResult {
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return dropEntry
	case err != nil:
		return a.errorResult(act, err)
	case act.Entry.UID != "" && u.GetUID() != act.Entry.UID:
		return dropEntry // another namespace with the same name
	case u.GetDeletionTimestamp() != nil:
		return actionResult{err: beingDeleted(u)}
	}
	keepReason := act.Message // the reason of a release
	if act.Verb != plan.VerbRelease {
		var protected *plan.ProtectedError
		switch keepReason, err = a.namespaceKeepReason(ctx, u); {
		case errors.As(err, &protected):
			return actionResult{err: protected}
		case err != nil:
			return a.errorResult(act, err)
		}
	}
	if keepReason != "" {
		// With the resourceVersion, one of two owners that leave at the same time finds that it is
		// the last.
		_, err = a.mergePatch(ctx, WriteRelease, r, ref.Name, map[string]any{"metadata": map[string]any{
			"annotations":     map[string]any{usedByAnnotation(a.owner.Key()): nil},
			"resourceVersion": u.GetResourceVersion()}})
		if apierrors.IsConflict(err) {
			return planAgain
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return a.errorResult(act, err)
		}
		return actionResult{dropEntry: true,
			change: &Change{Verb: plan.VerbRelease, Reason: plan.ReasonRemoved, Ref: ref,
				Message: "kept: " + keepReason}}
	}
	// With the resourceVersion, no owner can have joined since the namespace was read.
	err = a.withWriteHook(ctx, WriteDelete, func() error {
		return r.Delete(ctx, ref.Name, deleteOptions(u.GetUID(), u.GetResourceVersion()))
	})
	switch {
	case apierrors.IsNotFound(err):
		return dropEntry
	case apierrors.IsConflict(err):
		return planAgain
	case err != nil:
		return a.errorResult(act, err)
	}
	// Shared namespaces are not watched: the back-off repeats the check until it is gone.
	return actionResult{err: &plan.BeingDeletedError{Ref: ref},
		change: &Change{Verb: plan.VerbDelete, Reason: plan.ReasonRemoved, Ref: ref}}
}

// namespaceKeepReason returns why a namespace must stay; empty when it may be deleted. The error is
// a *ProtectedError when an annotation forbids the deletion.
func (a *executor) namespaceKeepReason(ctx context.Context, u *unstructured.Unstructured) (string, error) {
	key := a.owner.Key()
	if u.GetAnnotations()[createdByAnnotation] != key.Installation {
		return "it was not created by this installation", nil
	}
	for k, v := range u.GetAnnotations() {
		if strings.HasPrefix(k, usedByPrefix) && k != usedByAnnotation(key) {
			return plan.OwnerDisplayName(v) + " uses it", nil
		}
	}
	if u.GetAnnotations()[live.PreventDeletionAnnotation] == "true" {
		return "", &plan.ProtectedError{Ref: stacks.Ref{Kind: "Namespace", Name: u.GetName()}}
	}
	return a.findForeignObject(ctx, u.GetName())
}

// missingNamespace returns the id of the shared namespace whose absence caused a create to fail;
// empty when that was not the cause.
func (a *executor) missingNamespace(it *plan.Item, err error) string {
	if d := errorDetails(err); d == nil || d.Kind != "namespaces" || !apierrors.IsNotFound(err) {
		return ""
	}
	if e := a.sharedNamespaceEntry(it.Namespace); e != nil {
		return e.ID
	}
	return ""
}

// sharedNamespaceEntry returns the entry of a shared namespace that was observed to exist; nil when
// there is none.
func (a *executor) sharedNamespaceEntry(namespace string) *appsv1.InventoryEntry {
	e, ok := a.owner.Inventory().Get(sharedNamespace(namespace).ID())
	if !ok || e.State != appsv1.EntryShared || e.Hash == "" {
		return nil
	}
	return &e
}
