package v1

// AdoptMode specifies which existing objects an install may adopt.
// +kubebuilder:validation:Enum=Never;Unowned;Always
type AdoptMode string

// Adopt modes.
const (
	// AdoptNever refuses every object that already exists.
	AdoptNever AdoptMode = "Never"
	// AdoptUnowned adopts objects that no other manager claims. Removal releases them again.
	AdoptUnowned AdoptMode = "Unowned"
	// AdoptAlways adopts objects of any manager except another install. Removal deletes them.
	AdoptAlways AdoptMode = "Always"
)
