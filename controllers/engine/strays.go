package engine

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// takeUp enters strays into the inventory: objects that we made and that it does
// not list, such as one that a leader was about to send when it was stopped, and
// sent after its successor had removed it. One that is wanted is met where it is
// applied.
func (e *Engine) takeUp(ctx context.Context, t *Target, c *Client, o Owner, wanted map[string]bool) error {
	owner, inv, since := o.Key().String(), o.Inventory(), o.Policies().Since
	if since.IsZero() {
		return nil
	}
	strays := t.Index.Unclaimed(owner, func(ref stacks.Ref) bool {
		id := ref.ID()
		return wanted[id] || inv.has(id)
	})
	for _, ref := range strays {
		l, ok := t.Index.Get(ref)
		if !ok {
			continue
		}
		m, err := t.Discovery.Resolve(ctx, ref.Group, l.Version, ref.Kind)
		if err != nil {
			continue // asked again in the next pass
		}
		// The index knows too little to tell who made it.
		u, err := resourceAt(c, m, ref).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case err == nil && isStray(u, live.Mark{Owner: owner, ID: ref.ID()}, since):
			inv.Put(appsv1.InventoryEntry{ID: ref.ID(), Version: l.Version, State: appsv1.EntryIntended})
		case err == nil, apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		case fatal(err):
			return err
		default:
			continue
		}
		t.Index.Claim(owner, ref)
	}
	return nil
}

// isStray is true for an object that was made by us, for this owner as it is now
// and under this very name: labels and marks get copied and restored, and what is
// older than the owner is what another one of its name has left behind. It is a
// pure function.
func isStray(u *unstructured.Unstructured, mark live.Mark, since time.Time) bool {
	is, err := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
	made := slices.ContainsFunc(u.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == live.FieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == ""
	})
	return err == nil && is == mark && made && u.GetAnnotations()[live.AdoptedAnnotation] == "" &&
		u.GetDeletionTimestamp() == nil && !u.GetCreationTimestamp().Time.Before(since)
}
