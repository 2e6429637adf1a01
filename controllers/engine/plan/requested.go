package plan

import (
	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// RemovalRequest is a user's request to remove an object.
type RemovalRequest struct {
	// Suspended leaves the object as it is for now: it is neither reconciled nor removed.
	Suspended bool
	// KeepReason returns why an object is released instead of deleted; empty when it is deleted.
	KeepReason func(stacks.Ref) string
	// DeleteCustomResources deletes a CustomResourceDefinition with all of its objects, whoever
	// created them.
	DeleteCustomResources bool
}

// splitRequested splits entries into those with a removal request and those without one. Entries
// with a suspended request are in neither.
func splitRequested(p *Policies, entries []appsv1.InventoryEntry) (requested, others []appsv1.InventoryEntry) {
	if p.RemovalRequest == nil {
		return nil, entries
	}
	for i := range entries {
		switch r := p.RemovalRequest(&entries[i]); {
		case r == nil:
			others = append(others, entries[i])
		case !r.Suspended:
			requested = append(requested, entries[i])
		}
	}
	return requested, others
}

// splitReleased splits entries into those of Policies.Released and the others.
func splitReleased(p *Policies, entries []appsv1.InventoryEntry) (released, others []appsv1.InventoryEntry) {
	if len(p.Released) == 0 {
		return nil, entries
	}
	for _, e := range entries {
		if p.Released[e.ID] != "" {
			released = append(released, e)
		} else {
			others = append(others, e)
		}
	}
	return released, others
}

// Removal plans the removal of the objects with a removal request. It waits neither for other
// objects of the owner nor for an approval.
func Removal(in *Snapshot) Plan {
	requested, _ := splitRequested(&in.Policies, in.Inventory.Entries())
	return planRequested(in, requested)
}

// withoutHandoverWait returns a snapshot in which requested removals do not wait for the plans of
// other owners: an object is handed over only if its new owner is already known.
func withoutHandoverWait(in *Snapshot) *Snapshot {
	if in.Handovers == nil {
		return in
	}
	out := *in
	out.Handovers = map[string]HandoverDecision{}
	for id, d := range in.Handovers {
		out.Handovers[id] = HandoverDecision{To: d.To, Keep: d.Keep, On: d.On}
	}
	return &out
}

// RequestedRemovals returns the actions that remove the objects with a removal request, in the
// order of the removal. The objects of one step are removed concurrently. Other than in a plan,
// later steps are there, too.
func RequestedRemovals(in *Snapshot) (steps [][]Action) {
	requested, _ := splitRequested(&in.Policies, in.Inventory.Entries())
	slots, _ := orderRemovals(requested)
	for i := range slots {
		s := &slots[i]
		if i == 0 || !s.sameStep(&slots[i-1]) {
			steps = append(steps, nil)
		}
		steps[len(steps)-1] = append(steps[len(steps)-1], decideRemoval(in, s.entry, s.ref))
	}
	return steps
}

// RequestedJobs returns the entries of the Jobs that run before the requested removals, and the
// actions of those that the removals wait for now.
func RequestedJobs(in *Snapshot) (jobs []appsv1.InventoryEntry, waits []Action) {
	requested, _ := splitRequested(&in.Policies, in.Inventory.Entries())
	var p Plan
	planPreRemoveJobs(in, requested, &p)
	return preRemoveJobs(in, requested), p.Waits
}

// RetainedIDs returns the ids of entries without a removal request, or with a suspended one.
func RetainedIDs(p *Policies, inv *Inventory) map[string]bool {
	out := map[string]bool{}
	for id, e := range inv.entries {
		if r := p.RequestFor(&e); r == nil || r.Suspended {
			out[id] = true
		}
	}
	return out
}

func planRequested(in *Snapshot, entries []appsv1.InventoryEntry) Plan {
	var p Plan
	entries = planHandovers(in, entries, &p)
	inUse := p.splitLeft() // a request names its objects
	if len(p.Removals) == 0 && len(p.Waits) == 0 {
		planRemovals(in, entries, &p)
	}
	p.Waits = append(p.Waits, inUse...)
	return p
}
