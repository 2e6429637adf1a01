package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// A contribution sets fields in an object of another owner: an item of a list, a key of a map. The
// object gets no mark of the contributing owner, and is neither created nor deleted.

// ContributionManager returns the field manager of the contributions of a component.
func ContributionManager(owner OwnerKey, component string) string {
	return contributionManagerPrefix(owner) + shortHash(component, 4)
}

// OwnsContributionManager reports whether a field manager is that of a contribution of an owner. An
// object can have two of them while a contribution moves to another component.
func OwnsContributionManager(owner OwnerKey, manager string) bool {
	return strings.HasPrefix(manager, contributionManagerPrefix(owner))
}

func contributionManagerPrefix(owner OwnerKey) string {
	return live.ContributionManagerPrefix + shortHash(owner.String(), 8) + "-"
}

func shortHash(text string, n int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:n])
}

// decideContribution returns the action for a contribution, and true if it is ready: its fields are
// in the object. One that becomes an object of the owner is withdrawn first.
func decideContribution(in *Snapshot, a Action) (Action, bool) {
	object, observed := in.Contributed[a.Item.ID]
	switch {
	case !a.Item.Contribute:
		return decideWithdrawal(in, a), false
	case a.Entry.State != appsv1.EntryContributed:
		return refuseOwnContribution(a), false
	case in.waitsForIndex(&a, a.Item.Ref):
		return a, false
	case !observed:
		a.Verb, a.Reason, a.Message = VerbWait, ReasonIndexNotSynced, a.Item.Ref.String()+" is not observed yet"
		return a, false
	case object.UID == "":
		a.Verb, a.Reason = VerbWait, ReasonAbsent
		a.Message = a.Item.Ref.String() + " does not exist: a contribution does not create it"
		return a, false
	case object.Deleting:
		a.Verb, a.Reason, a.Message = VerbWait, ReasonBeingDeleted, a.Item.Ref.String()+" is being deleted"
		return a, false
	case in.waitsForRetry(&a, VerbRefuse):
		return a, false
	case a.Entry.Hash == "":
		a.Verb, a.Reason = VerbUpdate, ReasonNew
		return a, false
	case a.Entry.UID != object.UID: // it was deleted and created again
		a.Verb, a.Reason = VerbUpdate, ReasonReclaimed
		return a, false
	case a.Entry.Hash != a.Item.ContentHash, a.Entry.Component != a.Item.Component:
		a.Verb, a.Reason = VerbUpdate, ReasonChanged
		return a, false
	case a.Entry.Baseline != object.Fields(ContributionManager(in.Owner, a.Item.Component)):
		if leavesDrift(in, a.Item) {
			a.Verb, a.Reason = VerbSkip, ReasonDrifted
			return a, true
		}
		a.Verb, a.Reason = VerbUpdate, ReasonDrifted
		return a, false
	case a.Entry.Wave != a.Item.Wave, a.Entry.Leaving:
		a.Verb, a.Reason = VerbRecord, ReasonMoved
	default:
		a.Verb, a.Reason = VerbSkip, ReasonUnchanged
	}
	return a, true
}

// refuseOwnContribution returns the action for a contribution to an object that the owner has
// itself.
func refuseOwnContribution(a Action) Action {
	a.Verb, a.Reason = VerbRefuse, ReasonInvalid
	a.Err = NewInvalidObjectError("the object belongs to this owner, and a contribution is for an object of another " +
		"owner: remove the object from the stack first")
	a.Message = a.Item.Ref.String() + ": " + a.Err.Error()
	return a
}

// decideWithdrawal returns the action that takes a contribution back.
func decideWithdrawal(in *Snapshot, a Action) Action {
	if !in.waitsForRetry(&a, VerbWait) {
		a.Verb, a.Reason = VerbWithdraw, ReasonRemoved
	}
	return a
}
