package engine

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// snapshot returns the input of a plan, and its time. It sends no requests.
func (a *executor) snapshot() (*plan.Snapshot, time.Time) {
	inv, index, now := a.owner.Inventory(), a.target.Index, a.engine.clock.Now()
	size := max(len(a.desired), inv.Len())
	contributed := a.contributedObjects(now) // before the back-offs
	in := &plan.Snapshot{Owner: a.owner.Key(), Now: now, Components: a.components, Inventory: inv,
		Policies: a.owner.Policies(), Contributed: contributed, Collected: a.collectedResults(now),
		Objects: make(map[string]*live.Object, size), Succeeded: map[string]bool{},
		SyncErrors: map[schema.GroupKind]error{},
		Backoffs:   a.engine.backoffs.active(a.ownerKey, now), PendingDeletions: a.engine.deletions.all(a.ownerKey),
		Unsettled: a.unsettled, Existing: a.existing, RemovalHooks: a.removalHooks, DoneFor: map[string]time.Duration{}}
	in.Handovers, in.FormerOwners = a.decideHandovers(&in.Policies), a.formerOwners(now)
	objects := make([]live.Object, 0, size) // one allocation instead of one for each
	// runs is true for an object that may complete: a Job or a Pod.
	observe := func(id string, ref stacks.Ref, uid types.UID, runs bool) {
		if _, known := in.SyncErrors[ref.GroupKind()]; !known {
			in.SyncErrors[ref.GroupKind()] = index.Synced(ref.GroupKind())
		}
		if l, ok := index.Get(ref); ok {
			objects = append(objects, l)
			in.Objects[id] = &objects[len(objects)-1]
		}
		if runs && index.Succeeded(ref, uid) {
			in.Succeeded[id] = true
		}
	}
	for it := range items(slices.Concat(a.components, a.hookComponents)) {
		e, _ := inv.Get(it.ID)
		observe(it.ID, it.Ref, e.UID, it.RunsOnce || it.PreRemove > 0)
		if it.Hook != nil && it.Hook.TTLSeconds != nil && e.State == appsv1.EntryDone && in.Objects[it.ID] != nil {
			in.DoneFor[it.ID] = a.doneFor(it.ID, now)
		}
	}
	for id, e := range inv.All() {
		if ref, err := stacks.ParseID(id); !a.desired[id] && !a.hookIDs[id] && err == nil {
			observe(id, ref, e.UID, e.PreRemove > 0)
		}
	}
	return in, now
}

// doneFor returns the time since a hook was first seen as done.
func (a *executor) doneFor(id string, now time.Time) time.Duration {
	since := a.engine.done.get(a.ownerKey, id)
	if since.IsZero() || now.Before(since) {
		a.engine.done.record(a.ownerKey, id, now)
		return 0
	}
	return now.Sub(since)
}

// decideHandovers returns the decisions about the entries that may leave the owner.
func (a *executor) decideHandovers(p *plan.Policies) map[string]plan.HandoverDecision {
	if p.HandoverTo == nil {
		return nil
	}
	out := map[string]plan.HandoverDecision{}
	for id, e := range a.owner.Inventory().All() {
		switch {
		case a.desired[id] && p.RequestFor(&e) == nil, p.Released[id] != "", a.unsettled[id] != "":
		case a.onlyRequested && p.RequestFor(&e) == nil:
		case e.State == appsv1.EntryContributed: // the object is not the owner's
		default:
			out[id] = p.HandoverTo(id)
		}
	}
	return out
}
