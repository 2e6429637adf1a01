package plan

import (
	"cmp"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// HandoverDecision is what happens to an object that its owner no longer desires. The zero value
// means that no other owner desires it.
type HandoverDecision struct {
	// To is the owner that desires the object: the object is handed over to it, not deleted.
	To *OwnerKey
	// Wait is the reason why it is not known yet if another owner desires the object. The object
	// stays until that is known.
	Wait string
	// Keep is the reason why an object that another owner uses stays with its owner: the other one
	// cannot receive it. No other object waits for that.
	Keep string
	// On is the owner that Wait, Leave or Keep is about.
	On *OwnerKey
	// TakesOver is true if that owner takes over from the present one.
	TakesOver bool
	// Leave is the reason why the owner does not wait for that decision. The object stays.
	Leave string
}

// planHandovers plans to hand over the objects that other owners desire, and returns the entries
// that no other owner desires. Entries for which this is not known yet wait, or are left.
func planHandovers(in *Snapshot, undesired []appsv1.InventoryEntry, p *Plan) []appsv1.InventoryEntry {
	if in.Handovers == nil {
		return undesired
	}
	var remaining []appsv1.InventoryEntry
	reported := map[string]bool{}
	for _, e := range undesired {
		if in.Unsettled[e.ID] != "" {
			remaining = append(remaining, e)
			continue
		}
		d := in.Handovers[e.ID]
		switch why := cmp.Or(d.Wait, d.Leave, d.Keep); {
		case why != "":
			a := Action{Verb: VerbWait, Reason: ReasonHandoverPending, Entry: e, HandoverTo: d.On}
			switch {
			case d.Keep != "":
				a.Reason = ReasonInUse
			case d.TakesOver:
				a.Reason = ReasonSuccessorPending
			}
			if !reported[why] {
				reported[why] = true
				a.Message = why // once for all entries with the same reason
			}
			if d.Wait != "" {
				p.Waits = append(p.Waits, a)
			} else {
				p.Left = append(p.Left, a)
			}
		case d.To == nil || e.State == appsv1.EntryShared:
			remaining = append(remaining, e)
		default:
			planHandover(in, e, d.To, p)
		}
	}
	return remaining
}

// planHandover plans the handover of one object. An object that has another owner already is
// dropped.
func planHandover(in *Snapshot, e appsv1.InventoryEntry, newOwner *OwnerKey, p *Plan) {
	if _, err := parseEntryID(e.ID); err != nil {
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
	if !stacks.IsDefinition(e.ID) { // a user of the definition does not continue the component
		keepHooksFromRunning(in, e.Component, p)
	}
}
