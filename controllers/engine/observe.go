package engine

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// observer collects what is known of the objects of an owner, without a request.
type observer struct {
	index     Index
	objects   map[string]*live.Object
	succeeded map[string]bool
	// syncErrors has a nil error for a kind of which the index knows every object.
	syncErrors map[schema.GroupKind]error
	// found are the objects: one allocation instead of one for each.
	found []live.Object
}

// snapshot returns the input of a plan, and its time.
func (a *executor) snapshot() (*plan.Snapshot, time.Time) {
	inv, now := a.owner.Inventory(), a.engine.clock.Now()
	items := 0
	for i := range a.components {
		items += len(a.components[i].Items)
	}
	size := max(items, inv.Len())
	o := &observer{index: a.target.Index, objects: make(map[string]*live.Object, size), succeeded: map[string]bool{},
		syncErrors: map[schema.GroupKind]error{}, found: make([]live.Object, 0, size)}
	desired := make(map[string]bool, items)
	for i := range a.components {
		for j := range a.components[i].Items {
			it := &a.components[i].Items[j]
			desired[it.ID] = true
			e, _ := inv.Get(it.ID)
			o.observe(it.ID, it.Ref, e.UID, it.RunsOnce || it.PreRemove > 0)
		}
	}
	for id, e := range inv.All() {
		if ref, err := stacks.ParseID(id); !desired[id] && err == nil {
			o.observe(id, ref, e.UID, e.PreRemove > 0)
		}
	}
	owner := a.owner.Key().String()
	return &plan.Snapshot{Owner: a.owner.Key(), Components: a.components, Inventory: inv, Policies: a.owner.Policies(),
		Objects: o.objects, Succeeded: o.succeeded, SyncErrors: o.syncErrors,
		Backoffs: a.engine.backoffs.active(owner, now), PendingDeletions: a.engine.deletions.uids(owner)}, now
}

// observe adds one object. runs is true for one that may complete: a Job or a Pod.
func (o *observer) observe(id string, ref stacks.Ref, uid types.UID, runs bool) {
	if _, known := o.syncErrors[ref.GroupKind()]; !known {
		o.syncErrors[ref.GroupKind()] = o.index.Synced(ref.GroupKind())
	}
	if l, ok := o.index.Get(ref); ok {
		o.found = append(o.found, l)
		o.objects[id] = &o.found[len(o.found)-1]
	}
	if runs && o.index.Succeeded(ref, uid) {
		o.succeeded[id] = true
	}
}
