package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// setOwnerKinds sets the kinds of the owner in the index: those of its desired objects, and of the
// other entries of its inventory. It also sets the objects that the owner contributes to.
func (a *executor) setOwnerKinds(ctx context.Context) {
	t, o := a.target, a.owner
	// Keyed by version, too: managedFields record our fields in the version that was sent.
	seen := map[schema.GroupVersionKind]*meta.RESTMapping{}
	unwatched := map[string]bool{} // desired items that cannot be sent, or are shared
	for it := range items(slices.Concat(a.components, a.hookComponents)) {
		if it.ResolveErr == nil && !it.Shared {
			seen[it.Mapping.GroupVersionKind] = it.Mapping
		} else {
			unwatched[it.ID] = true
		}
	}
	for id, entry := range o.Inventory().All() {
		if (a.desired[id] && !unwatched[id]) || entry.State == appsv1.EntryShared {
			continue
		}
		ref, err := stacks.ParseID(id)
		gvk := ref.GroupKind().WithVersion(entry.Version)
		if err != nil || seen[gvk] != nil {
			continue
		}
		if m, err := t.Discovery.Resolve(ctx, ref.Group, entry.Version, ref.Kind); err == nil {
			seen[gvk] = m
		}
	}
	t.Index.SetOwnerKinds(a.ownerKey, slices.Collect(maps.Values(seen)))
	a.setContributed(ctx)
}

// syncError returns why the index may not know all objects of the owner: always the same one of
// several reasons. Kinds that are not served do not count: the plan waits for them.
func (a *executor) syncError(ctx context.Context) error {
	t, o := a.target, a.owner
	var first error
	var ns *plan.NotServedError
	seen := map[schema.GroupVersionKind]bool{}
	for id, entry := range o.Inventory().All() {
		ref, err := stacks.ParseID(id)
		gvk := ref.GroupKind().WithVersion(entry.Version)
		if err != nil || seen[gvk] || entry.State == appsv1.EntryShared {
			continue // a shared namespace is not watched
		}
		seen[gvk] = true
		if _, err := t.Discovery.Resolve(ctx, gvk.Group, gvk.Version, gvk.Kind); errors.As(err, &ns) {
			continue
		}
		if err := t.Index.Synced(gvk.GroupKind()); err != nil && (first == nil || err.Error() < first.Error()) {
			first = fmt.Errorf("%s: %w", ref.Kind, err)
		}
	}
	return first
}

// planSyncError returns why the index did not know all objects of the owner when the plan was made.
// The index may be synced by now: it notifies the owner, which is then reconciled again.
func planSyncError(p *plan.Plan, inv *plan.Inventory) error {
	for i := range p.Waits {
		w := &p.Waits[i]
		if _, has := inv.Get(w.Entry.ID); has && w.Verb == plan.VerbWait && w.Reason == plan.ReasonIndexNotSynced {
			return errors.New(w.Message)
		}
	}
	return nil
}

// items iterates over the items of all components.
func items(components []plan.Component) iter.Seq[*plan.Item] {
	return func(yield func(*plan.Item) bool) {
		for i := range components {
			for j := range components[i].Items {
				if !yield(&components[i].Items[j]) {
					return
				}
			}
		}
	}
}

// itemIDs returns the ids of all items.
func itemIDs(components []plan.Component) map[string]bool {
	out := map[string]bool{}
	for it := range items(components) {
		out[it.ID] = true
	}
	return out
}

// testIDs returns the ids of the items that are tests.
func (a *executor) testIDs() map[string]bool {
	return itemIDs(slices.DeleteFunc(slices.Clone(a.components), func(c plan.Component) bool { return !c.Test }))
}

// contentHashes returns the content hashes of each item by its id.
func contentHashes(components []plan.Component) map[string][2]string {
	out := map[string][2]string{}
	for it := range items(components) {
		out[it.ID] = [2]string{it.ContentHash, it.PostHash}
	}
	return out
}

// dropImpossible removes the entries whose objects cannot exist. The API server deleted the
// objects of a kind that is certainly no longer served; entries in keep stay nevertheless, because
// the kind may return. An object with an impossible name, or of a kind without objects, never
// existed.
func (a *executor) dropImpossible(ctx context.Context, keep map[string]bool) error {
	t, o := a.target, a.owner
	gone := map[schema.GroupKind]bool{} // one request for each kind: it discovers all that is served
	for id, entry := range o.Inventory().All() {
		uncreated := plan.Uncreated(&entry)
		if keep[id] && !uncreated {
			continue
		}
		ref, err := stacks.ParseID(id)
		if err != nil {
			continue // the plan drops it
		}
		m, err := t.Discovery.Resolve(ctx, ref.Group, entry.Version, ref.Kind)
		if uncreated && (plan.CheckName(ref) != nil || err == nil && len(t.Discovery.MissingVerbs(ctx, m)) > 0) {
			o.Inventory().Remove(id)
			continue
		}
		var ns *plan.NotServedError
		if keep[id] || !errors.As(err, &ns) {
			continue
		}
		absent, asked := gone[ref.GroupKind()]
		if !asked {
			if absent, err = t.Discovery.Absent(ctx, ref.GroupKind()); err != nil {
				return err
			}
			gone[ref.GroupKind()] = absent
		}
		if absent {
			o.Inventory().Remove(id)
		}
	}
	return nil
}
