package v1alpha1

// StateAction is what becomes of an entry of the store.
type StateAction string

// State actions.
const (
	// StateInSync is an entry that is as the source has it.
	StateInSync StateAction = "InSync"
	// StateCreate and StateUpdate are entries that are to be written.
	StateCreate StateAction = "Create"
	StateUpdate StateAction = "Update"
	// StateChangedSince is an entry that was imported, and that ksctl has changed since.
	StateChangedSince StateAction = "ChangedSince"
	// StateRemovedSince is an entry that was imported, and that somebody has taken out of the store since.
	StateRemovedSince StateAction = "RemovedSince"
	// StateConflict is an entry that is another one than the source's, and not ours.
	StateConflict StateAction = "Conflict"
	// StateLeft is an entry that was imported, and that the source has no more.
	StateLeft StateAction = "LeftSource"
	// StateInvalid is one that ksctl could not work with.
	StateInvalid StateAction = "Invalid"
	// StateExternal is one whose store is a MongoDB.
	StateExternal StateAction = "ExternalStorage"
	// StateFull is one that the store has no room for.
	StateFull StateAction = "StoreFull"
	// StateSent is an entry that was sent to an agent as the source has it. What became of it
	// there is not known.
	StateSent StateAction = "Sent"
)

// ImportedCluster is how the state of one cluster stands.
type ImportedCluster struct {
	// Key of the cluster in ksctl's store: <cloud>.<type>.<name>.<region>.
	Key string `json:"key"`

	// Name of the cluster.
	Name string `json:"name"`

	// Cloud that it is in.
	Cloud string `json:"cloud"`

	// Region of the cloud.
	Region string `json:"region"`

	// Type of the cluster: ha or selfmanaged, or managed.
	Type string `json:"type"`

	// Dialect is the first release of ksctl that writes documents of this form.
	// +optional
	Dialect string `json:"dialect,omitempty"`

	// Action is what is done, or why nothing is.
	Action StateAction `json:"action"`

	// Ready is true when the cluster's state is in the store, or was sent to the agent.
	Ready bool `json:"ready"`

	// Message says more, for a person.
	// +optional
	Message string `json:"message,omitempty"`

	// Cluster is the KsctlCluster that this import made for it, or found.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// Written identifies what the source and the store had in common last, or what was sent
	// to the agent last, by a keyed hash.
	// +optional
	Written string `json:"written,omitempty"`

	// Ours is true when it was written from here, and not found there.
	// +optional
	Ours bool `json:"ours,omitempty"`

	// Writing identifies what is about to be written, until that is known to be done.
	// +optional
	Writing string `json:"writing,omitempty"`
}

// ImportedCredentials is how the credentials of one cloud stand.
type ImportedCredentials struct {
	// Cloud that they are of.
	Cloud string `json:"cloud"`

	// Action is what is done, or why nothing is.
	Action StateAction `json:"action"`

	// Ready is true when the credentials are in the store, or were sent to the agent.
	Ready bool `json:"ready"`

	// Message says more, for a person.
	// +optional
	Message string `json:"message,omitempty"`

	// Written identifies what the source and the store had in common last, or what was sent
	// to the agent last, by a keyed hash.
	// +optional
	Written string `json:"written,omitempty"`

	// Ours is true when it was written from here, and not found there.
	// +optional
	Ours bool `json:"ours,omitempty"`

	// Writing identifies what is about to be written, until that is known to be done.
	// +optional
	Writing string `json:"writing,omitempty"`
}
