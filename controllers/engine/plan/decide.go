package plan

import (
	"errors"
	"fmt"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// decideItem returns the action for a desired object, and true if the object is ready. The first
// rule that matches wins.
func decideItem(in *Snapshot, it *Item) (Action, bool) {
	a := Action{Item: it}
	a.Entry, _ = entryFor(in, it)
	if it.PreRemove > 0 && a.Entry.State == appsv1.EntryDone {
		a.Entry.State, a.Entry.Hash = appsv1.EntryApplied, "" // it has to run again
	}
	if it.ResolveErr != nil {
		return decideUnresolved(a), false
	}
	if it.Shared {
		return decideSharedNamespace(in, a)
	}
	if it.Contribute || a.Entry.State == appsv1.EntryContributed {
		return decideContribution(in, a)
	}
	if in.waitsForIndex(&a, it.Ref) {
		return a, false
	}
	// An object without a mark is ours if the entry has its uid. Else its owner is unknown.
	if l := in.Objects[it.ID]; l != nil && (l.Mark.Owner != "" || l.UID == a.Entry.UID) {
		a.Live = l
	}
	if owner, ok := definitionOwner(in, it); ok {
		return decideDefinition(in, a, owner)
	}
	if act, ready, ok := decideCreateOnly(in, a); ok {
		return act, ready
	}
	if owner := in.FormerOwners[it.ID]; owner != "" && a.Live == nil && a.Entry.UID == "" {
		return awaitFormerOwner(a, owner), false
	}
	// The index knows the other owner of this installation: no request is needed.
	if a.Live != nil && a.Live.Mark.Owner != "" && a.Live.Mark.Owner != in.Owner.String() {
		return refuseOwned(a), false
	}
	if in.waitsForRetry(&a, VerbRefuse) {
		return a, false
	}
	if finished(in, &a) {
		return a, true
	}
	if a.Live != nil && in.isDeleting(it.ID, a.Live) {
		a.Verb, a.Reason = VerbWait, ReasonBeingDeleted
		a.Message = NewBeingDeletedError(a.Live).Error()
		return a, false
	}
	switch a.Entry.State {
	case appsv1.EntryApplied, appsv1.EntryAdopted, appsv1.EntryDone:
		if a.Live == nil {
			return decideMissing(in, a)
		}
		return decidePresent(in, a)
	default:
		return decideUncreated(a), false
	}
}

// finished returns true for an object that runs once and has run, with the action for it. It may be
// in deletion, or deleted by its TTL.
func finished(in *Snapshot, a *Action) bool {
	if !a.Item.RunsOnce || a.Entry.Hash != a.Item.ContentHash {
		return false
	}
	switch {
	case a.Entry.State == appsv1.EntryDone:
		a.Verb, a.Reason = VerbSkip, ReasonFinished
	case in.Succeeded[a.Item.ID]:
		a.Verb, a.Reason = VerbRecord, ReasonFinished
	default:
		return false
	}
	return true
}

// decideUncreated returns the action for an object whose creation is not recorded.
func decideUncreated(a Action) Action {
	switch {
	case a.Live == nil:
		a.Verb, a.Reason = VerbCreate, ReasonNew
	case a.Item.Runs() && a.Entry.Hash == a.Item.ContentHash: // see createIntent
		a.Verb, a.Reason = VerbRecord, ReasonReclaimed
	case a.Item.Runs() && !a.Live.Adopted:
		a.Verb, a.Reason = VerbUpdate, ReasonRunsAgain
	default:
		// It has our mark, but the inventory does not record it as applied: the controller crashed
		// between the create and the status write, or the management cluster was rebuilt.
		a.Verb, a.Reason = VerbUpdate, ReasonReclaimed
	}
	return a
}

// refuseOwned returns the action for an object of another owner of this installation.
func refuseOwned(a Action) Action {
	a.Verb, a.Reason = VerbRefuse, ReasonOwnedByOther
	a.Err = &OwnedByOtherError{Ref: a.Item.Ref, By: OwnerDisplayName(a.Live.Mark.Owner),
		Hint: "remove the object from one of the two"}
	a.Message = a.Err.Error()
	return a
}

// decideUnresolved returns the action for an item whose kind could not be resolved. It waits for a
// kind that a CRD or an APIService may still provide, and refuses the others.
func decideUnresolved(a Action) Action {
	var ns *NotServedError
	if errors.As(a.Item.ResolveErr, &ns) && !ns.BuiltIn {
		a.Verb, a.Reason, a.Message = VerbWait, ReasonNotServed, a.Item.Ref.String()+": "+ns.Error()
		return a
	}
	a.Verb, a.Reason, a.Err = VerbRefuse, ReasonInvalid, a.Item.ResolveErr
	a.Message = a.Item.Ref.String() + ": " + a.Item.ResolveErr.Error()
	var invalid *InvalidObjectError
	if ns == nil && !errors.As(a.Item.ResolveErr, &invalid) {
		a.Reason = ReasonIndexNotSynced // the discovery request failed
	}
	return a
}

// decideMissing returns the action for an applied object that does not exist.
func decideMissing(in *Snapshot, a Action) (Action, bool) {
	switch {
	case a.Entry.Hash != a.Item.ContentHash:
		a.Verb, a.Reason = VerbCreate, ReasonChanged
		return a, false
	case leavesDrift(in, a.Item) && !a.Item.Runs(): // a hook that is gone has not succeeded
		a.Verb, a.Reason = VerbSkip, ReasonMissing
		return a, true
	default:
		a.Verb, a.Reason = VerbCreate, ReasonMissing
		return a, false
	}
}

// leavesDrift reports whether drift of an object is not corrected. That of generated values is,
// because the next render needs them.
func leavesDrift(in *Snapshot, it *Item) bool {
	return (in.Policies.Drift == appsv1.DriftWarn || in.Policies.Drift == appsv1.DriftIgnore) && !it.Generated
}

// decidePresent returns the action for an applied object that exists.
func decidePresent(in *Snapshot, a Action) (Action, bool) {
	l := a.Live
	switch {
	case a.Item.PreRemove > 0 && l.Finished:
		a.Verb, a.Reason = VerbUpdate, ReasonRemovalCanceled
		return a, false
	case a.Entry.Hash != a.Item.ContentHash && isRunnable(a.Item) && !l.Adopted &&
		(a.Item.RunsOnce || a.Entry.State == appsv1.EntryDone || l.Finished):
		a.Verb, a.Reason = VerbUpdate, ReasonRunsAgain // an update in place would not run it
		return a, false
	case a.Entry.Hash != a.Item.ContentHash:
		a.Verb, a.Reason = VerbUpdate, ReasonChanged
		return a, false
	case a.Item.RunsOnce && l.Readiness == live.Current && !runsOn(&a):
		a.Verb, a.Reason = VerbRecord, ReasonFinished
		return a, true
	case l.UID != a.Entry.UID:
		// Deleted and recreated with our mark, as by a restored backup.
		a.Verb, a.Reason = VerbUpdate, ReasonReclaimed
		return a, false
	case l.LabelLost, l.Mark.Owner == "", live.Drifted(a.Entry.Baseline, l.OwnedHash), reclaimedByTool(in, &a):
		if leavesDrift(in, a.Item) {
			a.Verb, a.Reason = VerbSkip, ReasonDrifted
			break
		}
		a.Verb, a.Reason = VerbUpdate, ReasonDrifted
		return a, false
	default:
		return decideUnchanged(a)
	}
	return withReadiness(a)
}

// decideUnchanged returns the action for an object that needs no request.
func decideUnchanged(a Action) (Action, bool) {
	switch {
	case a.Entry.Wave != a.Item.Wave, a.Entry.Component != a.Item.Component, a.Entry.PreRemove != a.Item.PreRemove,
		a.Entry.Leaving:
		a.Verb, a.Reason = VerbRecord, ReasonMoved
	default:
		a.Verb, a.Reason = VerbSkip, ReasonUnchanged
	}
	return withReadiness(a)
}

// withReadiness returns an action, and true if its object is ready; else with the reason.
func withReadiness(a Action) (Action, bool) {
	l := a.Live
	if runsOn(&a) {
		a.Message = fmt.Sprintf("%s runs, and is not done", a.Item.Ref)
		return a, false
	}
	if l.Readiness == live.Current || a.Item.PreRemove > 0 || a.Item.ignoresHealth() {
		return a, true
	}
	a.Message = notReadyMessage(&a)
	return a, false
}

// notReadyMessage returns why an object is not ready.
func notReadyMessage(a *Action) string {
	m := fmt.Sprintf("%s is %s", a.Item.Ref, a.Live.Readiness)
	switch {
	case strings.HasPrefix(a.Live.Message, m): // the status of an install of an install may begin so
		return a.Live.Message
	case a.Live.Message != "":
		return m + ": " + a.Live.Message
	}
	return m
}

// runsOn is true for a Pod that is a hook, and that is ready but has not ended: Helm waits until it
// has succeeded.
func runsOn(a *Action) bool {
	return a.Item.RunsOnce && a.Item.GroupKind() == podKind && a.Live.Readiness == live.Current && !a.Live.Succeeded
}

// reclaimedByTool is true for an object that was taken over permanently and that its former tool
// has marked again: that tool has not been configured to stop managing it.
func reclaimedByTool(in *Snapshot, a *Action) bool {
	return a.Live.TrackedByTool && a.Entry.State == appsv1.EntryApplied && in.Policies.TakesOver()
}

// decideSharedNamespace returns the action for a namespace that several owners may use.
func decideSharedNamespace(in *Snapshot, a Action) (Action, bool) {
	if in.waitsForRetry(&a, VerbRefuse) {
		return a, false
	}
	if a.Entry.Hash != "" {
		a.Verb, a.Reason = VerbSkip, ReasonUnchanged
		return a, true
	}
	a.Verb, a.Reason = VerbCreate, ReasonNew
	return a, false
}

// OwnerDisplayName returns the display name of the owner in a mark; the quoted text if it is not an
// owner key.
func OwnerDisplayName(owner string) string {
	if k, ok := ParseOwnerKey(owner); ok {
		return k.DisplayName()
	}
	return fmt.Sprintf("%q", owner)
}
