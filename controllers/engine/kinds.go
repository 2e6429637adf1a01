package engine

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// use tells the index which kinds the owner has objects of, wanted or left over.
// wanted are the ids of the components' items.
func (e *Engine) use(ctx context.Context, t *Target, o Owner, components []Component, wanted map[string]bool) {
	// By version, too: what we own is recorded in the version that it was sent in.
	seen := map[schema.GroupVersionKind]*meta.RESTMapping{}
	unwatched := map[string]bool{} // as they are wanted now
	for i := range components {
		for j := range components[i].Items {
			if it := &components[i].Items[j]; it.Mapping != nil && !it.Shared {
				seen[it.Mapping.GroupVersionKind] = it.Mapping
			} else {
				unwatched[it.ID] = true
			}
		}
	}
	for id, entry := range o.Inventory().entries {
		if (wanted[id] && !unwatched[id]) || entry.State == appsv1.EntryShared {
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
	kinds := make([]*meta.RESTMapping, 0, len(seen))
	for _, m := range seen {
		kinds = append(kinds, m)
	}
	t.Index.Use(o.Key().String(), kinds)
}

// unsynced is a reason why the index may not know everything that the owner has,
// the same one each time. Of a kind that is not served there is nothing to know:
// the plan says that it waits for it.
func unsynced(ctx context.Context, t *Target, o Owner) error {
	var first error
	var ns *NotServedError
	seen := map[schema.GroupVersionKind]bool{}
	for id, entry := range o.Inventory().entries {
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

// wasUnsynced is why the index did not know everything that the owner has when the
// plan was made. By now it may: the owner is told of that, and plans anew.
func wasUnsynced(p *Plan, inv *Inventory) error {
	for i := range p.Waits {
		w := &p.Waits[i]
		if _, has := inv.Get(w.Entry.ID); has && w.Verb == Wait && w.Reason == Unsynced {
			return errors.New(w.Message)
		}
	}
	return nil
}

// ids of all items.
func ids(components []Component) map[string]bool {
	out := map[string]bool{}
	for i := range components {
		for j := range components[i].Items {
			out[components[i].Items[j].ID] = true
		}
	}
	return out
}

// wants returns the content of each item by its id.
func wants(components []Component) map[string]string {
	out := map[string]string{}
	for i := range components {
		for j := range components[i].Items {
			it := &components[i].Items[j]
			out[it.ID] = it.Want
		}
	}
	return out
}

// dropUnserved forgets entries that are not wanted, of kinds that are certain
// to be gone: their objects went with them.
func (e *Engine) dropUnserved(ctx context.Context, t *Target, o Owner, wanted map[string]bool) error {
	gone := map[schema.GroupKind]bool{} // asked once each: an answer is all that a server serves
	for id, entry := range o.Inventory().entries {
		if wanted[id] {
			continue
		}
		ref, err := stacks.ParseID(id)
		if err != nil {
			continue
		}
		_, err = t.Discovery.Resolve(ctx, ref.Group, entry.Version, ref.Kind)
		var ns *NotServedError
		if !errors.As(err, &ns) {
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
