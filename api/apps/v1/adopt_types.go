package v1

// AdoptMode specifies which existing objects an install may adopt.
// +kubebuilder:validation:Enum=Never;Unowned;Unchanged;Always
type AdoptMode string

// Adopt modes.
const (
	// AdoptNever refuses every object that already exists.
	AdoptNever AdoptMode = "Never"
	// AdoptUnowned adopts objects that no other manager claims. Removal releases them again.
	AdoptUnowned AdoptMode = "Unowned"
	// AdoptUnchanged is AdoptAlways for components whose existing objects would only change in
	// their metadata. It takes no object of other components.
	AdoptUnchanged AdoptMode = "Unchanged"
	// AdoptAlways adopts objects of any manager except another install. Removal deletes them.
	AdoptAlways AdoptMode = "Always"
)
