package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EntryState is the state of an object of the inventory.
// +kubebuilder:validation:Enum=Intended;Applied;Adopted;Done;Shared;Contributed
type EntryState string

// Entry states.
const (
	// EntryIntended is recorded before the object is created. The object is adopted or deleted only
	// if its annotation ksctl.com/mark names this owner.
	EntryIntended EntryState = "Intended"
	// EntryApplied is an object that the controller created.
	EntryApplied EntryState = "Applied"
	// EntryAdopted is an object that existed before. Removal releases it.
	EntryAdopted EntryState = "Adopted"
	// EntryDone is a Job or hook that has finished. It stays in this state, even if it is deleted,
	// until its hash changes.
	EntryDone EntryState = "Done"
	// EntryShared is a namespace that several owners may use. The last owner deletes it, if one of
	// them created it.
	EntryShared EntryState = "Shared"
	// EntryContributed is an object of another owner in which a component sets fields. It is
	// recorded before the first request, and has a hash after it. Removal takes only these fields
	// back.
	EntryContributed EntryState = "Contributed"
)

// InventoryEntry is one object that an owner manages. ID and version have the same format as in
// Flux.
type InventoryEntry struct {
	// ID is <namespace>_<name>_<group>_<kind>.
	ID string `json:"id"`
	// Version of the API that the object was applied with.
	Version string `json:"v"`
	// UID of the object. It is set once the object is applied.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Component that the object belongs to.
	// +optional
	Component string `json:"component,omitempty"`
	// Wave of the component, counted from 0.
	// +optional
	Wave int32 `json:"wave,omitempty"`
	// State of the object.
	State EntryState `json:"state"`
	// Leaving is true once the deletion of the object is approved.
	// +optional
	Leaving bool `json:"leaving,omitempty"`
	// RetainedAt is the time at which an object of a component with retain left the stack. It is
	// only set while the object is kept because of that.
	// +optional
	RetainedAt *metav1.MicroTime `json:"retainedAt,omitempty"`
	// PreRemove is only set for a Job that runs before anything is removed: its position among
	// those of its wave, counted from 1. It is -1 for a Secret with the hooks of a component if
	// those before the removal have run.
	// +optional
	PreRemove int32 `json:"preRemove,omitempty"`
	// Hash of the desired object as last applied.
	// +optional
	Hash string `json:"hash,omitempty"`
	// Baseline is a hash of the fields that the controller owns, as returned by the API server for
	// the last apply. Of a contribution, it is one hash for each field.
	// +optional
	Baseline string `json:"baseline,omitempty"`
}

// Inventory lists the objects that an owner manages. It consists of the entries of the chunks and
// of the entries here, which override entries of a chunk with the same id.
type Inventory struct {
	// Entries that are stored here. More than 1,000 objects are stored in chunks.
	// +optional
	Entries []InventoryEntry `json:"entries,omitempty"`

	// Chunks are the names of the KsctlInventory objects that contain the other entries.
	// +optional
	Chunks []string `json:"chunks,omitempty"`

	// Removed are the ids of objects that are removed and are still listed in the chunks.
	// +optional
	Removed []string `json:"removed,omitempty"`

	// Settled is the number of objects when everything desired was last applied and no deletion was
	// held. It is the base of spec.guard.maxDeletePercent.
	// +optional
	Settled int32 `json:"settled,omitempty"`

	// SettledIDs is a hash of the ids that were desired when settled was recorded. If the desired
	// ids are the same again, a change that was never completed is being reverted, and the base of
	// the percentage is all existing objects.
	// +optional
	SettledIDs string `json:"settledIDs,omitempty"`
}

// KsctlInventory is a part of the inventory of an owner with many objects. It is kept until
// everything that it lists is removed, even if its owner is already deleted.
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

// InventoryOwner identifies the object that the inventory belongs to.
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
