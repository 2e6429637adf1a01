package engine

import (
	"errors"
	"fmt"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// decide says what one wanted object needs, and whether it is ready as it is.
// The rules stand in the order in which they win.
func decide(in *Input, it *Item) (Action, bool) {
	a := Action{Item: it}
	a.Entry, _ = intent(in, it)
	if it.PreRemove > 0 && a.Entry.State == appsv1.EntryDone {
		a.Entry.State, a.Entry.Hash = appsv1.EntryApplied, "" // it is to run again
	}
	if it.Unserved != nil {
		return unserved(a), false
	}
	if it.Shared {
		return decideShared(in, a)
	}
	if err := in.Unsynced(it.GroupKind()); err != nil {
		a.Verb, a.Reason, a.Message = Wait, Unsynced, it.Ref.String()+": "+err.Error()
		return a, false
	}
	// An object that lost its mark is ours by its uid, or nobody's that is known.
	if l, ok := in.Live(it.Ref); ok && (l.Mark.Owner != "" || l.UID == a.Entry.UID) {
		a.Live = &l
	}
	// Somebody else of this installation has it: no request is needed to know.
	if a.Live != nil && a.Live.Mark.Owner != "" && a.Live.Mark.Owner != in.Owner.String() {
		return refuse(a, &OwnedError{Ref: it.Ref, By: OwnerName(a.Live.Mark.Owner),
			Hint: "remove it from one of the two"}), false
	}
	if held := in.Held(it); held != "" {
		a.Verb, a.Reason, a.Message, a.Err = Refuse, Held, held, errHeld
		return a, false
	}
	if it.RunsOnce && a.Entry.State != appsv1.EntryDone && a.Entry.Hash == it.Want && in.Succeeded(it.Ref, a.Entry.UID) {
		a.Verb, a.Reason = Record, Finished
		return a, true // whatever became of it since: its TTL may delete it
	}
	if it.RunsOnce && a.Entry.State == appsv1.EntryDone && a.Entry.Hash == it.Want {
		a.Verb, a.Reason = Skip, Finished
		return a, true // also while it goes
	}
	if a.Live != nil && (a.Live.Deleting || in.Deleted(it.ID) == a.Live.UID) {
		a.Verb, a.Reason = Wait, Leaving
		a.Message = leavingObject(a.Live).Error()
		return a, false
	}
	switch a.Entry.State {
	case appsv1.EntryApplied, appsv1.EntryAdopted, appsv1.EntryDone:
		if a.Live == nil {
			return decideMissing(in, a)
		}
		return decideKnown(in, a)
	default:
		if a.Live == nil {
			a.Verb, a.Reason = Create, NewObject
			return a, false
		}
		// Its mark says that we made it, and nobody wrote that down: a crash
		// between the create and the status, or a rebuilt management cluster.
		a.Verb, a.Reason = Update, Taken
		return a, false
	}
}

var errHeld = errors.New("held")

func unserved(a Action) Action {
	var ns *NotServedError
	if errors.As(a.Item.Unserved, &ns) && !ns.BuiltIn {
		a.Verb, a.Reason, a.Message = Wait, NotServed, a.Item.Ref.String()+": "+ns.Error()
		return a
	}
	a.Verb, a.Reason, a.Err = Refuse, Invalid, a.Item.Unserved
	a.Message = a.Item.Ref.String() + ": " + a.Item.Unserved.Error()
	var scope *WrongScopeError
	if ns == nil && !errors.As(a.Item.Unserved, &scope) {
		a.Reason = Unsynced // the API server gave no answer
	}
	return a
}

func refuse(a Action, err error) Action {
	a.Verb, a.Reason, a.Err, a.Message = Refuse, Owned, err, err.Error()
	return a
}

// decideMissing is for an object that we applied and that is not there.
func decideMissing(in *Input, a Action) (Action, bool) {
	switch {
	case a.Entry.Hash != a.Item.Want:
		a.Verb, a.Reason = Create, Changed
		return a, false
	case in.Policies.Drift == appsv1.DriftWarn, in.Policies.Drift == appsv1.DriftIgnore:
		a.Verb, a.Reason = Skip, Missing
		return a, true
	default:
		a.Verb, a.Reason = Create, Missing
		return a, false
	}
}

// decideKnown is for an object that we applied and that is there.
func decideKnown(in *Input, a Action) (Action, bool) {
	l := a.Live
	switch {
	case a.Item.PreRemove > 0 && l.Done:
		a.Verb, a.Reason = Update, Spent
		return a, false
	case a.Entry.Hash != a.Item.Want:
		a.Verb, a.Reason = Update, Changed
		return a, false
	case a.Item.RunsOnce && l.Ready == live.Current:
		a.Verb, a.Reason = Record, Finished
		return a, true
	case l.UID != a.Entry.UID:
		// Deleted and made again with our mark on it, as a restored backup does.
		a.Verb, a.Reason = Update, Taken
		return a, false
	case l.LabelLost, l.Mark.Owner == "", live.Drifted(a.Entry.Baseline, l.Owned), claimedBack(in, &a):
		if in.Policies.Drift == appsv1.DriftWarn || in.Policies.Drift == appsv1.DriftIgnore {
			a.Verb, a.Reason = Skip, Drifted
			break
		}
		a.Verb, a.Reason = Update, Drifted
		return a, false
	case a.Entry.Wave != a.Item.Wave, a.Entry.Component != a.Item.Component, a.Entry.PreRemove != a.Item.PreRemove, a.Entry.Leaving:
		a.Verb, a.Reason = Record, Moved
	default:
		a.Verb, a.Reason = Skip, Unchanged
	}
	if l.Ready == live.Current || a.Item.PreRemove > 0 {
		return a, true
	}
	a.Message = fmt.Sprintf("%s is %s", a.Item.Ref, describe(l))
	return a, false
}

// claimedBack is true for an object that was taken over for good, and that the tool which
// had it claims again: it was not told to leave it.
func claimedBack(in *Input, a *Action) bool {
	return a.Live.Claimed && a.Entry.State == appsv1.EntryApplied && in.Policies.Adopt == appsv1.AdoptAlways
}

// decideShared is for a namespace that may have several users.
func decideShared(in *Input, a Action) (Action, bool) {
	if held := in.Held(a.Item); held != "" {
		a.Verb, a.Reason, a.Message, a.Err = Refuse, Held, held, errHeld
		return a, false
	}
	if a.Entry.Hash != "" {
		a.Verb, a.Reason = Skip, Unchanged
		return a, true
	}
	a.Verb, a.Reason = Create, NewObject
	return a, false
}

func describe(l *live.Object) string {
	if l.Message == "" {
		return l.Ready.String()
	}
	return l.Ready.String() + ": " + l.Message
}

// OwnerName turns the owner of a mark into words.
func OwnerName(owner string) string {
	if k, ok := ParseOwnerKey(owner); ok {
		return k.People()
	}
	return fmt.Sprintf("%q", owner)
}
