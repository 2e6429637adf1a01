package importstate

import (
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/stacks/state"
)

// record is what is known of an entry from before: what the source and the store had in
// common last, what was about to be written when a pass ended that did not say how, and whether
// it was written from here at all.
type record struct {
	written, writing string
	ours             bool
}

func recordOf(row v1alpha1.ImportedCluster) record { return record{row.Written, row.Writing, row.Ours} }

// entry is one value of the store.
type entry struct {
	// want is what the source has, have what the store has; nil: nothing.
	want, have []byte
	// there is true when the store itself is, with whatever in it.
	there bool
	record
}

// promote takes note that what was about to be written was.
func (e *entry) promote(how policy) {
	if e.writing != "" && e.have != nil && how.hash(e.have) == e.writing {
		e.written, e.writing, e.ours = e.writing, "", true
	}
}

// back is what can be said of an entry that the store lacked and has again, while nobody knows
// what the source has.
func (r record) back(have []byte, how policy) v1alpha1.StateAction {
	if h := how.hash(have); h == r.written || h == r.writing {
		return v1alpha1.StateInSync
	}
	return v1alpha1.StateChangedSince
}

// decide is what becomes of an entry that the source has.
func (e entry) decide(how policy) v1alpha1.StateAction {
	imported := e.written != "" && how.hash(e.want) == e.written
	switch {
	case e.have == nil && imported && e.there:
		return v1alpha1.StateRemovedSince // as ksctl does with a cluster that it deletes
	case e.have == nil:
		return v1alpha1.StateCreate
	case state.Equal(e.want, e.have):
		return v1alpha1.StateInSync
	case how.hash(e.have) == e.written:
		return v1alpha1.StateUpdate // nobody has touched it since
	case imported:
		return v1alpha1.StateChangedSince // ksctl has gone on from there
	case how.overwrite:
		return v1alpha1.StateUpdate
	}
	return v1alpha1.StateConflict
}

// decideSent is what becomes of an entry that an agent is to have, which may have another one
// at any time. What was about to be sent when a pass ended may have been sent or not.
func (e entry) decideSent(how policy) v1alpha1.StateAction {
	sent := e.writing == "" && e.written != "" && how.hash(e.want) == e.written
	switch {
	case sent && (!how.again || !how.overwrite):
		return v1alpha1.StateSent
	case !how.overwrite:
		return v1alpha1.StateConflict
	case e.written == "":
		return v1alpha1.StateCreate
	}
	return v1alpha1.StateUpdate
}

// writes is true for what something is written for.
func writes(a v1alpha1.StateAction) bool {
	return a == v1alpha1.StateCreate || a == v1alpha1.StateUpdate
}

// settled is true for what is in the store as it is to be.
func settled(a v1alpha1.StateAction) bool {
	return a == v1alpha1.StateInSync || a == v1alpha1.StateChangedSince
}

// explain says more of an action, for a person.
func explain(a v1alpha1.StateAction) string {
	switch a {
	case v1alpha1.StateCreate:
		return "it is to be written"
	case v1alpha1.StateUpdate:
		return "it is to be written over what the store has"
	case v1alpha1.StateChangedSince:
		return "it was imported, and has been changed in the store since; it is left alone until the source changes"
	case v1alpha1.StateRemovedSince:
		return "it was imported, and has been taken out of the store since; it is left out until the source changes"
	case v1alpha1.StateConflict:
		return "the store has another one, which was not written from here: compare the two, then correct the source, or set spec.conflict to Overwrite"
	case v1alpha1.StateLeft:
		return "the source has it no more; it stays in the store"
	case v1alpha1.StateFull:
		return "the store has no room for what is to be written"
	}
	return ""
}
