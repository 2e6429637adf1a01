package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EntryState is how far an object of the inventory came.
// +kubebuilder:validation:Enum=Intended;Applied;Adopted;Done;Shared
type EntryState string

// Entry states.
const (
	// EntryIntended is written before the object is created. It is taken or
	// deleted only if the live object's mark says that it is ours.
	EntryIntended EntryState = "Intended"
	// EntryApplied is an object that we made.
	EntryApplied EntryState = "Applied"
	// EntryAdopted is an object that was there before us: removal releases it.
	EntryAdopted EntryState = "Adopted"
	// EntryDone is a Job or hook that finished: it stays done, even when it is
	// deleted, until its hash changes.
	EntryDone EntryState = "Done"
	// EntryShared is a namespace that several owners may use: the last one
	// removes it if one of them made it.
	EntryShared EntryState = "Shared"
)

// InventoryEntry is one object that an owner manages. ID and version have the
// form that Flux uses.
type InventoryEntry struct {
	// ID is <namespace>_<name>_<group>_<kind>.
	ID string `json:"id"`
	// Version of the API that the object was applied with.
	Version string `json:"v"`
	// UID of the object, once it was applied.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Component that wants the object.
	// +optional
	Component string `json:"component,omitempty"`
	// Wave of the component, counted from 0.
	// +optional
	Wave int32 `json:"wave,omitempty"`
	// State of the object.
	State EntryState `json:"state"`
	// Leaving is true once it was approved that the object goes.
	// +optional
	Leaving bool `json:"leaving,omitempty"`
	// PreRemove is set for a Job that runs before anything is removed: its place
	// among those of its wave, counted from 1.
	// +optional
	PreRemove int32 `json:"preRemove,omitempty"`
	// Hash of the desired object as last applied.
	// +optional
	Hash string `json:"hash,omitempty"`
	// Baseline is a hash of the fields that we own, as the API server answered the last apply.
	// +optional
	Baseline string `json:"baseline,omitempty"`
}

// Inventory is what an owner manages: the entries of the chunks, each
// overridden by the entry of the same id here.
type Inventory struct {
	// Entries held here; more than 1,000 objects spill to chunks.
	// +optional
	Entries []InventoryEntry `json:"entries,omitempty"`

	// Chunks are the names of the KsctlInventory objects that hold the rest.
	// +optional
	Chunks []string `json:"chunks,omitempty"`

	// Removed are ids that the chunks still hold but that are gone.
	// +optional
	Removed []string `json:"removed,omitempty"`

	// Settled is how many objects there were when everything that is wanted was sent
	// last and no deletion was held: spec.guard.maxDeletePercent is of these.
	// +optional
	Settled int32 `json:"settled,omitempty"`

	// SettledIDs is a hash of the ids that were wanted then: when exactly these are again,
	// a change that was never complete is taken back, and the percentage is of all objects.
	// +optional
	SettledIDs string `json:"settledIDs,omitempty"`
}

// KsctlInventory is a part of the inventory of an owner with many objects. It
// outlives its owner until everything that it lists is gone.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=kinv,categories=ksctl
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=".owner.name"
type KsctlInventory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Owner of the entries, in the same namespace.
	Owner InventoryOwner `json:"owner"`

	// Entries of this chunk.
	// +optional
	Entries []InventoryEntry `json:"entries,omitempty"`
}

// InventoryOwner names the object whose inventory a chunk belongs to.
type InventoryOwner struct {
	// Group of the owner's kind.
	Group string `json:"group"`
	// Kind of the owner.
	Kind string `json:"kind"`
	// Name of the owner.
	Name string `json:"name"`
}

// KsctlInventoryList is a list of KsctlInventories.
//
// +kubebuilder:object:root=true
type KsctlInventoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KsctlInventory `json:"items"`
}
