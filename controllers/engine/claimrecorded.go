package engine

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// ClaimRecorded puts the owner's mark on the objects of the inventory entries in state Intended,
// which another tool created. It claims exactly the objects with the recorded uid. otherOwner
// returns the current owner of an object; empty when it may be claimed. Objects that are gone,
// recreated or owned by others are removed from the inventory; all of them but those that are gone
// are returned in dropped. errs are the errors of single objects, whose entries stay Intended.
func (e *Engine) ClaimRecorded(ctx context.Context, p Pass, otherOwner func(stacks.Ref,
	*unstructured.Unstructured) string) (dropped []Change, errs []error, err error) {
	a, o := e.newExecutor(p), p.Owner
	if err := a.dropImpossible(ctx, nil); err != nil {
		return nil, nil, err
	}
	intended := slices.DeleteFunc(o.Inventory().Entries(),
		func(e appsv1.InventoryEntry) bool { return e.State != appsv1.EntryIntended })
	results := make([]actionResult, len(intended))
	var g errgroup.Group
	g.SetLimit(e.concurrency)
	for i := range intended {
		g.Go(func() error {
			results[i] = a.claimRecordedObject(ctx, &intended[i], otherOwner)
			return results[i].fatal
		})
	}
	err = g.Wait()
	for i, r := range results {
		switch {
		case r.dropEntry:
			o.Inventory().Remove(intended[i].ID)
		case r.entry != nil:
			o.Inventory().Put(*r.entry)
		case r.err != nil:
			errs = append(errs, r.err)
		}
		if r.change != nil {
			dropped = append(dropped, *r.change)
		}
	}
	return dropped, errs, err
}

// claimRecordedObject claims the object of one entry for ClaimRecorded.
func (a *executor) claimRecordedObject(ctx context.Context, entry *appsv1.InventoryEntry, otherOwner func(stacks.Ref,
	*unstructured.Unstructured) string) actionResult {
	act := &plan.Action{Verb: plan.VerbUpdate, Entry: *entry}
	ref, err := stacks.ParseID(entry.ID)
	if err != nil {
		return dropEntry
	}
	m, err := a.target.Discovery.Resolve(ctx, ref.Group, entry.Version, ref.Kind)
	if err != nil {
		return a.errorResult(act, err)
	}
	r := a.client.Resource(m.Resource).Namespace(ref.Namespace)
	for try := 1; ; try++ {
		u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return dropEntry
		case err != nil:
			return a.errorResult(act, err)
		case u.GetUID() != entry.UID:
			return dropped(ref, plan.ReasonOwnedByOther, "it was recreated since: left as it is")
		}
		if by := otherOwner(ref, u); by != "" {
			return dropped(ref, plan.ReasonOwnedByOther, "it belongs to "+by+" now: left as it is")
		}
		claimed := *entry
		claimed.State = appsv1.EntryApplied
		mark := live.Mark{Owner: a.ownerKey, ID: entry.ID}.String()
		if u.GetAnnotations()[live.MarkAnnotation] == mark &&
			u.GetLabels()[live.OwnerLabel] == a.owner.Key().Installation {
			return actionResult{entry: &claimed}
		}
		_, err = a.mergePatch(ctx, WriteUpdate, r, ref.Name, map[string]any{"metadata": map[string]any{
			"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(),
			"labels":      map[string]any{live.OwnerLabel: a.owner.Key().Installation},
			"annotations": map[string]any{live.MarkAnnotation: mark},
		}})
		switch {
		case err == nil:
			return actionResult{entry: &claimed}
		case apierrors.IsNotFound(err):
			return dropEntry
		case apierrors.IsConflict(err) && try < maxAttempts:
			continue
		}
		return a.errorResult(act, err)
	}
}
