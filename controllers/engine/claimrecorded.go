package engine

import (
	"context"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Take marks the objects of an owner's inventory that are intended, which somebody
// else made, as its own: exactly those that have the uid that was recorded. others
// names who an object belongs to by now; empty: it may be taken. What is gone, made
// anew or somebody's leaves the inventory, and is told unless it is gone. Errors
// are those of single objects, which are intended still.
func (e *Engine) Take(ctx context.Context, t *Target, c *Client, o Owner, others func(stacks.Ref, *unstructured.Unstructured) string) (left []Change, errs []error, err error) {
	if err := e.dropUnserved(ctx, t, o, nil); err != nil {
		return nil, nil, err
	}
	var wanted []appsv1.InventoryEntry
	for _, entry := range o.Inventory().Entries() {
		if entry.State == appsv1.EntryIntended {
			wanted = append(wanted, entry)
		}
	}
	a := &actor{engine: e, target: t, client: c, owner: o}
	results := make([]result, len(wanted))
	var g errgroup.Group
	g.SetLimit(e.concurrency)
	for i := range wanted {
		g.Go(func() error {
			results[i] = a.takeOne(ctx, &wanted[i], others)
			return results[i].fatal
		})
	}
	err = g.Wait()
	for i, r := range results {
		switch {
		case r.drop:
			o.Inventory().Remove(wanted[i].ID)
		case r.entry != nil:
			o.Inventory().Put(*r.entry)
		case r.err != nil:
			errs = append(errs, r.err)
		}
		if r.change != nil {
			left = append(left, *r.change)
		}
	}
	return left, errs, err
}

func (a *actor) takeOne(ctx context.Context, entry *appsv1.InventoryEntry, others func(stacks.Ref, *unstructured.Unstructured) string) result {
	act := &Action{Verb: Update, Entry: *entry}
	ref, err := stacks.ParseID(entry.ID)
	if err != nil {
		return result{drop: true}
	}
	m, err := a.target.Discovery.Resolve(ctx, ref.Group, entry.Version, ref.Kind)
	if err != nil {
		return a.failed(act, err)
	}
	r := resourceAt(a.client, m, ref)
	for try := 1; ; try++ {
		u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return result{drop: true}
		case err != nil:
			return a.failed(act, err)
		case u.GetUID() != entry.UID:
			return left(ref, Owned, "it was made anew since: left as it is")
		}
		if by := others(ref, u); by != "" {
			return left(ref, Owned, "it belongs to "+by+" by now: left as it is")
		}
		taken := *entry
		taken.State = appsv1.EntryApplied
		mark := live.Mark{Owner: a.owner.Key().String(), ID: entry.ID}.String()
		if u.GetAnnotations()[live.MarkAnnotation] == mark && u.GetLabels()[live.OwnerLabel] == a.owner.Key().Installation {
			return result{entry: &taken}
		}
		_, err = a.merge(ctx, WriteUpdate, r, ref.Name, map[string]any{"metadata": map[string]any{
			"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion(),
			"labels":      map[string]any{live.OwnerLabel: a.owner.Key().Installation},
			"annotations": map[string]any{live.MarkAnnotation: mark},
		}})
		switch {
		case err == nil:
			return result{entry: &taken}
		case apierrors.IsNotFound(err):
			return result{drop: true}
		case apierrors.IsConflict(err) && try < maxTries:
			continue
		}
		return a.failed(act, err)
	}
}

func left(ref stacks.Ref, why Reason, note string) result {
	return result{drop: true, change: &Change{Verb: Drop, Reason: why, Ref: ref, Note: note}}
}
