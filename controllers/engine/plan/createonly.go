package plan

import (
	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// A create-only object is created when it is missing, and never changed after that. One that
// existed before stays as it is: it is neither marked nor listed in the inventory, so that a
// removal leaves it, too.

// IsCreateOnly is false for hooks and for Jobs before a removal: they have to run.
func (it *Item) IsCreateOnly() bool { return it.CreateOnly && it.Hook == nil && it.PreRemove == 0 }

// leavesExisting is true for a create-only object that existed before, as far as that is known.
func leavesExisting(in *Snapshot, it *Item) bool {
	if !it.IsCreateOnly() || it.ResolveErr != nil {
		return false
	}
	if l := in.Objects[it.ID]; l != nil && l.Mark.Owner != "" {
		e, recorded := in.Inventory.Get(it.ID)
		return l.Mark.Owner != in.Owner.String() && (!recorded || Uncreated(&e))
	}
	return in.Existing[it.ID]
}

// decideCreateOnly returns the action for a create-only object that exists or existed, and true if
// it is ready; ok is false if the rules for other objects decide.
func decideCreateOnly(in *Snapshot, a Action) (_ Action, ready, ok bool) {
	l, created := a.Live, a.Entry.State != appsv1.EntryIntended
	ours := l != nil && (l.Mark.Owner == "" || l.Mark.Owner == in.Owner.String())
	switch {
	case !a.Item.IsCreateOnly():
		return a, false, false
	case leavesExisting(in, a.Item):
		a.Verb, a.Reason, a.Live = VerbSkip, ReasonExisted, nil
		return a, true, true
	case a.Item.RunsOnce && a.Entry.State == appsv1.EntryDone:
		a.Verb, a.Reason = VerbSkip, ReasonFinished
		return a, true, true
	case a.Item.RunsOnce && created && (in.Succeeded[a.Item.ID] || ours && l.Readiness == live.Current):
		a.Verb, a.Reason = VerbRecord, ReasonFinished
		return a, true, true
	case l == nil && created && leavesDrift(in, a.Item):
		a.Verb, a.Reason = VerbSkip, ReasonMissing
		return a, true, true
	case !ours, in.isDeleting(a.Item.ID, l):
		return a, false, false
	case !created, l.UID != a.Entry.UID:
		a.Verb, a.Reason = VerbRecord, ReasonReclaimed
		return a, false, true
	}
	a, ready = decideUnchanged(a)
	return a, ready, true
}
