package importstate

import (
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/stacks/state"
)

// entry is one value of the store, with its row in the status.
type entry struct {
	// Written is the hash of the last value that the source and the store had in common. Writing is
	// the hash of a value whose write was started, but not confirmed. Ours is true if the
	// ImportState has written the entry.
	v1alpha1.ImportedCluster
	// want is the value in the source, have the value in the store; nil if it does not exist.
	want, have []byte
	// storeExists is true if the store exists, even if it has no such entry.
	storeExists bool
}

// confirmWrite marks an unconfirmed write as written if the store has its value.
func (e *entry) confirmWrite(opts planOptions) {
	if e.Writing != "" && e.have != nil && opts.hash(e.have) == e.Writing {
		e.Written, e.Writing, e.Ours = e.Writing, "", true
	}
}

// plan sets the action in the row, and adds the value to values if the action writes it.
func (e *entry) plan(values map[string][]byte, opts planOptions) {
	e.Action = e.decide(opts)
	e.Message, e.Ready = opts.message(e.Action), settled(e.Action)
	if e.Action == v1alpha1.StateInSync {
		e.Written, e.Writing = opts.hash(e.want), ""
	}
	if writes(e.Action) {
		values[e.Key] = e.want
	}
}

// decide returns the action for an entry of the source.
func (e *entry) decide(opts planOptions) v1alpha1.StateAction {
	unchangedInSource := e.Written != "" && opts.hash(e.want) == e.Written
	switch {
	case opts.agent:
		return e.decideForAgent(opts)
	case e.have == nil && unchangedInSource && e.storeExists:
		return v1alpha1.StateRemovedSince // ksctl removes the state of a cluster that it deletes
	case e.have == nil:
		return v1alpha1.StateCreate
	case state.Equal(e.want, e.have):
		return v1alpha1.StateInSync
	case opts.hash(e.have) == e.Written:
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
func (e *entry) decideForAgent(opts planOptions) v1alpha1.StateAction {
	sent := e.Writing == "" && e.Written != "" && opts.hash(e.want) == e.Written
	switch {
	case sent && (!opts.resend || !opts.overwrite):
		return v1alpha1.StateSent
	case !opts.overwrite:
		return v1alpha1.StateConflict
	case e.Written == "":
		return v1alpha1.StateCreate
	}
	return v1alpha1.StateUpdate
}

// writes reports whether the action writes an entry.
func writes(a v1alpha1.StateAction) bool {
	return a == v1alpha1.StateCreate || a == v1alpha1.StateUpdate
}

// settled reports whether the action leaves an imported entry in the store, or at the agent.
func settled(a v1alpha1.StateAction) bool {
	return a == v1alpha1.StateInSync || a == v1alpha1.StateChangedSince || a == v1alpha1.StateSent
}

// actionMessages explain actions to users.
var actionMessages = map[v1alpha1.StateAction]string{
	v1alpha1.StateCreate:       "not written yet",
	v1alpha1.StateUpdate:       "not written yet; overwrites the entry in the store",
	v1alpha1.StateChangedSince: "changed in the store since the import; not updated until the source changes",
	v1alpha1.StateRemovedSince: "removed from the store since the import; not restored until the source changes",
	v1alpha1.StateConflict: "the store contains a different entry that this ImportState did not write: compare " +
		"both, then correct the source, or set spec.conflict to Overwrite",
	v1alpha1.StateLeft: "no longer in the source; stays in the store",
	v1alpha1.StateFull: "not written, because the store would exceed its maximum size",
}

// message explains an action to users.
func (o planOptions) message(a v1alpha1.StateAction) string {
	if message, ok := agentMessages[a]; ok && o.agent {
		return message
	}
	return actionMessages[a]
}
