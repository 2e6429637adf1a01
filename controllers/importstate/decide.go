package importstate

import (
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/stacks/state"
)

// record is what the status remembers of an entry.
type record struct {
	// written is the hash of the last value that the source and the store had in common. writing is
	// the hash of a value whose write was started, but not confirmed.
	written, writing string
	// ours is true if the ImportState has written the entry.
	ours bool
}

func recordOf(row v1alpha1.ImportedCluster) record { return record{row.Written, row.Writing, row.Ours} }

// entry is one value of the store.
type entry struct {
	// want is the value in the source, have the value in the store; nil if it does not exist.
	want, have []byte
	// storeExists is true if the store exists, even if it has no such entry.
	storeExists bool
	record
}

// confirmWrite marks an unconfirmed write as written if the store has its value.
func (e *entry) confirmWrite(opts planOptions) {
	if e.writing != "" && e.have != nil && opts.hash(e.have) == e.writing {
		e.written, e.writing, e.ours = e.writing, "", true
	}
}

// restored returns the action of an entry that was missing in the store and exists again, while the
// content of the source is unknown.
func (r record) restored(have []byte, opts planOptions) v1alpha1.StateAction {
	if h := opts.hash(have); h == r.written || h == r.writing {
		return v1alpha1.StateInSync
	}
	return v1alpha1.StateChangedSince
}

// decide returns the action for an entry of the source.
func (e entry) decide(opts planOptions) v1alpha1.StateAction {
	unchangedInSource := e.written != "" && opts.hash(e.want) == e.written
	switch {
	case e.have == nil && unchangedInSource && e.storeExists:
		return v1alpha1.StateRemovedSince // ksctl removes the state of a cluster that it deletes
	case e.have == nil:
		return v1alpha1.StateCreate
	case state.Equal(e.want, e.have):
		return v1alpha1.StateInSync
	case opts.hash(e.have) == e.written:
		return v1alpha1.StateUpdate // unchanged in the store since the last write
	case unchangedInSource:
		return v1alpha1.StateChangedSince // only ksctl has changed it
	case opts.overwrite:
		return v1alpha1.StateUpdate
	}
	return v1alpha1.StateConflict
}

// decideForAgent returns the action for an entry to send to an agent. The agent's store may contain
// another value at any time. An unconfirmed value may have been sent or not, so it is sent again.
func (e entry) decideForAgent(opts planOptions) v1alpha1.StateAction {
	sent := e.writing == "" && e.written != "" && opts.hash(e.want) == e.written
	switch {
	case sent && (!opts.resend || !opts.overwrite):
		return v1alpha1.StateSent
	case !opts.overwrite:
		return v1alpha1.StateConflict
	case e.written == "":
		return v1alpha1.StateCreate
	}
	return v1alpha1.StateUpdate
}

// writes reports whether the action writes an entry.
func writes(a v1alpha1.StateAction) bool {
	return a == v1alpha1.StateCreate || a == v1alpha1.StateUpdate
}

// settled reports whether the action leaves an imported entry in the store.
func settled(a v1alpha1.StateAction) bool {
	return a == v1alpha1.StateInSync || a == v1alpha1.StateChangedSince
}

// actionMessage explains an action to users.
func actionMessage(a v1alpha1.StateAction) string {
	switch a {
	case v1alpha1.StateCreate:
		return "not written yet"
	case v1alpha1.StateUpdate:
		return "not written yet; overwrites the entry in the store"
	case v1alpha1.StateChangedSince:
		return "changed in the store since the import; not updated until the source changes"
	case v1alpha1.StateRemovedSince:
		return "removed from the store since the import; not restored until the source changes"
	case v1alpha1.StateConflict:
		return "the store contains a different entry that this ImportState did not write: compare both, then correct the source, or set spec.conflict to Overwrite"
	case v1alpha1.StateLeft:
		return "no longer in the source; stays in the store"
	case v1alpha1.StateFull:
		return "not written, because the store would exceed its maximum size"
	}
	return ""
}
