package engine

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// adoptStrays adds strays to the inventory: objects that we created and that it does not list. Such
// an object appears when a leader is paused before a create request, and sends it after its
// successor has removed the object; or when an object is handed over to an owner that does not want
// it anymore. Desired strays are not added here, but claimed when they are applied. Until then they
// stay strays: the next render may not have them.
func (a *executor) adoptStrays(ctx context.Context) error {
	t, o := a.target, a.owner
	inv, since := o.Inventory(), o.Policies().AdoptStraysSince
	if since.IsZero() {
		return nil
	}
	strays := t.Index.Strays(a.ownerKey, func(ref stacks.Ref) bool {
		_, listed := inv.Get(ref.ID())
		return listed
	})
	if len(strays) == 0 {
		return nil
	}
	// With the permissions of the controller: an owner whose account may not read an object at the
	// moment would end without it, and nobody would remove the object.
	reader, err := t.ClientFor(nil)
	if err != nil {
		return err
	}
	failed := 0
	for _, ref := range strays {
		l, ok := t.Index.Get(ref)
		if !ok || a.desired[ref.ID()] {
			continue
		}
		m, err := t.Discovery.Resolve(ctx, ref.Group, l.Version, ref.Kind)
		if err != nil {
			continue // retried in the next pass
		}
		// The index does not know who created it.
		u, err := reader.Resource(m.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case err == nil && isStray(u, live.Mark{Owner: a.ownerKey, ID: ref.ID()}, since):
			inv.Put(appsv1.InventoryEntry{ID: ref.ID(), Version: l.Version, State: appsv1.EntryIntended})
		case err == nil, apierrors.IsNotFound(err):
		case isFatal(err):
			return err
		default: // retried in the next pass
			if failed++; failed == maxUnreadStrays {
				return nil
			}
			continue
		}
		t.Index.DropStray(a.ownerKey, ref)
	}
	return nil
}

// maxUnreadStrays is the number of failed reads after which a pass looks at no more strays. Whoever
// may write annotations can make objects that seem to be strays of others.
const maxUnreadStrays = 20

// isStray is true for an object that we created, or handed over, with this mark since the creation
// of the owner. The mark alone is no proof, because labels and annotations get copied and restored;
// and an object that is older than the owner was left by an earlier owner with the same name. It is
// a pure function.
func isStray(u *unstructured.Unstructured, mark live.Mark, since time.Time) bool {
	ann, entries := u.GetAnnotations(), u.GetManagedFields()
	return ann[live.MarkAnnotation] == mark.String() && ann[live.AdoptedAnnotation] == "" &&
		slices.ContainsFunc(entries, isOwnEntry) && u.GetDeletionTimestamp() == nil &&
		(!u.GetCreationTimestamp().Time.Before(since) || slices.ContainsFunc(entries, isHandoverSince(since)))
}

var markField = fieldpath.MakePathOrDie("metadata", "annotations", live.MarkAnnotation)

// isHandoverSince returns a function that reports whether a managed fields entry is that of
// handOver, and not older than a time.
func isHandoverSince(since time.Time) func(metav1.ManagedFieldsEntry) bool {
	return func(e metav1.ManagedFieldsEntry) bool {
		if e.Manager != live.FieldManager || e.Operation != metav1.ManagedFieldsOperationUpdate ||
			e.Subresource != "" || e.Time == nil || e.Time.Time.Before(since) {
			return false
		}
		set, err := readSet(e.FieldsV1)
		return err == nil && set.Has(markField)
	}
}
