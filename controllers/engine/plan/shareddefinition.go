package plan

import (
	"fmt"

	"github.com/ksctl/gitops/controllers/live"
)

// Several owners of an installation may need the same CustomResourceDefinition. One of them has it.
// The others use it as it is: they neither write it nor list it in their inventories.

// definitionOwner returns the other owner of this installation that has a CustomResourceDefinition;
// ok is false if there is none.
func definitionOwner(in *Snapshot, it *Item) (owner OwnerKey, ok bool) {
	l := in.Objects[it.ID]
	if it.Serves == nil || it.ResolveErr != nil || l == nil || l.Serves == nil {
		return OwnerKey{}, false
	}
	owner, ok = ParseOwnerKey(l.Mark.Owner)
	return owner, ok && owner != in.Owner && owner.Installation == in.Owner.Installation &&
		owner.Cluster == in.Owner.Cluster
}

// planEntry plans the change of the inventory before an item is sent: a new entry is persisted
// before the create, and one of a CustomResourceDefinition that another owner has is dropped.
func planEntry(in *Snapshot, it *Item, p *Plan) {
	e, known := entryFor(in, it)
	_, owned := definitionOwner(in, it)
	_, recorded := in.Inventory.Get(it.ID)
	owned = owned || leavesExisting(in, it)
	switch {
	case owned && recorded && in.SyncErrors[it.GroupKind()] == nil:
		p.Removals = append(p.Removals, Action{Verb: VerbDrop, Reason: ReasonOwnedByOther, Entry: e})
	case owned, in.FormerOwners[it.ID] != "" && !recorded:
	case it.Serves != nil && !recorded && in.SyncErrors[it.GroupKind()] != nil: // another owner may have it
	case !known:
		p.Intents = append(p.Intents, e)
	case e.Component != it.Component:
		keepHooksFromRunning(in, e.Component, p)
	}
}

// decideDefinition returns the action for a CustomResourceDefinition of another owner, and true if
// it serves what the item needs and is ready.
func decideDefinition(in *Snapshot, a Action, owner OwnerKey) (Action, bool) {
	if lacks := a.Live.Serves.Lacks(a.Item.Serves); lacks != "" {
		a.Verb, a.Reason = VerbRefuse, ReasonOwnedByOther
		a.Err = &OwnedByOtherError{Ref: a.Item.Ref, By: owner.DisplayName(),
			Hint: fmt.Sprintf("%s needs %s: change the definition in one of the two", in.Owner.DisplayName(), lacks)}
		a.Message = a.Err.Error()
		return a, false
	}
	if in.isDeleting(a.Item.ID, a.Live) {
		a.Verb, a.Reason = VerbWait, ReasonBeingDeleted
		a.Message = NewBeingDeletedError(a.Live).Error()
		return a, false
	}
	a.Verb, a.Reason = VerbSkip, ReasonShared
	if a.Live.Readiness == live.Current {
		return a, true
	}
	a.Message = notReadyMessage(&a)
	return a, false
}

// awaitFormerOwner returns the action for a CustomResourceDefinition that another owner had, and
// creates again.
func awaitFormerOwner(a Action, owner string) Action {
	a.Verb, a.Reason = VerbWait, ReasonAwaitsFormerOwner
	a.Message = fmt.Sprintf("%s was deleted: waits for %s to create it again", a.Item.Ref, owner)
	return a
}

// splitLeft turns the objects that are left into waits of a removal, in which nothing is left
// behind. It returns the waits for those that others use: nothing else of the removal waits for
// them.
func (p *Plan) splitLeft() (inUse []Action) {
	for _, a := range p.Left {
		if a.Reason == ReasonInUse {
			inUse = append(inUse, a)
		} else {
			p.Waits = append(p.Waits, a)
		}
	}
	p.Left = nil
	return inUse
}
