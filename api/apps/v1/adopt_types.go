package v1

// AdoptMode says which existing objects an install may take over.
// +kubebuilder:validation:Enum=Never;Unowned;Always
type AdoptMode string

// Adopt modes.
const (
	// AdoptNever refuses every object that exists already.
	AdoptNever AdoptMode = "Never"
	// AdoptUnowned takes objects that no other manager claims; removal releases them again.
	AdoptUnowned AdoptMode = "Unowned"
	// AdoptAlways takes objects from any manager but another install; removal deletes them.
	AdoptAlways AdoptMode = "Always"
)
