package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RemovalObject is one object of a removal, and what is to say of it.
type RemovalObject struct {
	// ID is <namespace>_<name>_<group>_<kind>.
	ID string `json:"id"`
	// Reason is one word for why it is named.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says the same for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// RemovalStep is what goes side by side. The next step begins when all of it is gone.
type RemovalStep struct {
	// Wave of the components, counted from 0; the last wave goes first.
	Wave int32 `json:"wave"`
	// Count of the objects.
	Count int32 `json:"count"`
	// Objects by id; with many, the first of them.
	// +optional
	Objects []string `json:"objects,omitempty"`
}

// Removal is the rehearsal of a removal: it stands here before the first delete.
type Removal struct {
	// Generation of the spec that it was made for.
	Generation int64 `json:"generation"`
	// Digest of the objects that it was made for.
	Digest string `json:"digest"`
	// MadeAt is when it was made; spec.timeout counts from there.
	MadeAt metav1.Time `json:"madeAt"`
	// Count of the objects that are asked to go.
	Count int32 `json:"count"`
	// Order in which they go.
	// +optional
	Order []RemovalStep `json:"order,omitempty"`
	// Kept are the objects that will be left, and why; with many, the first of them.
	// +optional
	Kept []RemovalObject `json:"kept,omitempty"`
	// Blockers are what would hold the removal as things stand; with many, the first of them.
	// +optional
	Blockers []RemovalObject `json:"blockers,omitempty"`
	// Dependents are those that need what is to go, in words; with many, the first of them.
	// +optional
	Dependents []string `json:"dependents,omitempty"`
}
