package plan

import (
	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// planHandovers plans to hand over the objects that other owners desire, and returns the entries
// that no other owner desires. Entries for which this is not known yet wait.
func planHandovers(in *Snapshot, undesired []appsv1.InventoryEntry, p *Plan) []appsv1.InventoryEntry {
	if in.Policies.HandoverTo == nil {
		return undesired
	}
	var remaining []appsv1.InventoryEntry
	reported := map[string]bool{}
	for _, e := range undesired {
		newOwner, wait := in.Policies.HandoverTo(e.ID)
		switch {
		case wait != "":
			a := Action{Verb: VerbWait, Reason: ReasonHandoverPending, Entry: e}
			if !reported[wait] {
				reported[wait] = true
				a.Message = wait // once for all entries with the same reason
			}
			p.Waits = append(p.Waits, a)
		case newOwner == nil || e.State == appsv1.EntryShared:
			remaining = append(remaining, e)
		default:
			planHandover(in, e, newOwner, p)
		}
	}
	return remaining
}

// planHandover plans the handover of one object. An object that has another owner already is
// dropped.
func planHandover(in *Snapshot, e appsv1.InventoryEntry, newOwner *OwnerKey, p *Plan) {
	if _, err := stacks.ParseID(e.ID); err != nil {
		p.Removals = append(p.Removals, dropInvalid(e, err))
		return
	}
	a := Action{Verb: VerbHandOver, Reason: ReasonMoved, Entry: e, HandoverTo: newOwner}
	if !in.waitsForRetry(&a, VerbWait) {
		if a.Live = in.Objects[e.ID]; a.Live != nil && a.Live.Mark.Owner != in.Owner.String() {
			a.Verb, a.Reason = VerbDrop, ReasonOwnedByOther
		}
	}
	p.addRemoval(a)
}
