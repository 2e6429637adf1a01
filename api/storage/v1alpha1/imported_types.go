package v1alpha1

// StateAction is the action for an entry of the store, or the reason why there is none.
type StateAction string

// State actions.
const (
	// StateInSync: the entry is equal to the source.
	StateInSync StateAction = "InSync"
	// StateCreate and StateUpdate: the entry will be written.
	StateCreate StateAction = "Create"
	StateUpdate StateAction = "Update"
	// StateChangedSince: ksctl has changed the entry since it was imported.
	StateChangedSince StateAction = "ChangedSince"
	// StateRemovedSince: the entry was removed from the store since it was imported.
	StateRemovedSince StateAction = "RemovedSince"
	// StateConflict: the entry differs from the source, and this ImportState did not write it.
	StateConflict StateAction = "Conflict"
	// StateLeft: the entry was imported, and is no longer in the source.
	StateLeft StateAction = "LeftSource"
	// StateInvalid: ksctl could not use the entry.
	StateInvalid StateAction = "Invalid"
	// StateExternal: the store of the entry is a MongoDB.
	StateExternal StateAction = "ExternalStorage"
	// StateFull: the store has no space for the entry.
	StateFull StateAction = "StoreFull"
	// StateSent: the entry was sent to an agent as it is in the source. The result there is
	// unknown.
	StateSent StateAction = "Sent"
)

// ImportedCluster is the state of the import of one cluster.
type ImportedCluster struct {
	// Key of the cluster in ksctl's store, as <cloud>.<type>.<name>.<region>.
	Key string `json:"key"`

	// Name of the cluster.
	Name string `json:"name"`

	// Cloud of the cluster.
	Cloud string `json:"cloud"`

	// Region of the cloud.
	Region string `json:"region"`

	// Type of the cluster: ha or selfmanaged, or managed.
	Type string `json:"type"`

	// Dialect is the format of the state, named by the first release of ksctl that writes it.
	// +optional
	Dialect string `json:"dialect,omitempty"`

	// Action is the action for the entry, or the reason why there is none.
	Action StateAction `json:"action"`

	// Ready is true if the state of the cluster is in the store, or was sent to the agent.
	Ready bool `json:"ready"`

	// Message is a human-readable explanation of the action.
	// +optional
	Message string `json:"message,omitempty"`

	// Cluster is the KsctlCluster of the cluster, which the ImportState created or found.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// Written is a keyed hash of the last content that the source and the store had in common, or
	// that was last sent to the agent.
	// +optional
	Written string `json:"written,omitempty"`

	// Ours is true if the ImportState wrote the entry, and false if the entry already existed.
	// +optional
	Ours bool `json:"ours,omitempty"`

	// Writing is a keyed hash of content whose write has started and is not confirmed yet.
	// +optional
	Writing string `json:"writing,omitempty"`
}

// ImportedCredentials is the state of the import of the credentials of one cloud.
type ImportedCredentials struct {
	// Cloud of the credentials.
	Cloud string `json:"cloud"`

	// Action is the action for the entry, or the reason why there is none.
	Action StateAction `json:"action"`

	// Ready is true if the credentials are in the store, or were sent to the agent.
	Ready bool `json:"ready"`

	// Message is a human-readable explanation of the action.
	// +optional
	Message string `json:"message,omitempty"`

	// Written is a keyed hash of the last content that the source and the store had in common, or
	// that was last sent to the agent.
	// +optional
	Written string `json:"written,omitempty"`

	// Ours is true if the ImportState wrote the entry, and false if the entry already existed.
	// +optional
	Ours bool `json:"ours,omitempty"`

	// Writing is a keyed hash of content whose write has started and is not confirmed yet.
	// +optional
	Writing string `json:"writing,omitempty"`
}
