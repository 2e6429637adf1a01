package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RemovalObject is an object of a removal, and the reason why it is listed.
type RemovalObject struct {
	// ID is <namespace>_<name>_<group>_<kind>.
	ID string `json:"id"`
	// Reason is a CamelCase reason why the object is listed.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a human-readable explanation of the reason.
	// +optional
	Message string `json:"message,omitempty"`
}

// RemovalStep is a group of objects that are removed in parallel. The next step starts when all of
// them are gone.
type RemovalStep struct {
	// Wave of the components, counted from 0. The last wave is removed first.
	Wave int32 `json:"wave"`
	// Count is the number of objects.
	Count int32 `json:"count"`
	// Objects are the ids of the objects. If there are many, only the first ones are listed.
	// +optional
	Objects []string `json:"objects,omitempty"`
}

// Removal is the preview of a removal. It is written before the first object is deleted.
type Removal struct {
	// Generation of the spec that the preview was made for.
	Generation int64 `json:"generation"`
	// Digest of the objects that the preview was made for.
	Digest string `json:"digest"`
	// MadeAt is the time at which the preview was made. spec.timeout starts at this time.
	MadeAt metav1.Time `json:"madeAt"`
	// Count is the number of objects whose removal is requested.
	Count int32 `json:"count"`
	// Order lists the steps of the removal, in their order.
	// +optional
	Order []RemovalStep `json:"order,omitempty"`
	// Kept are the objects that will be kept, with the reason. If there are many, only the first
	// ones are listed.
	// +optional
	Kept []RemovalObject `json:"kept,omitempty"`
	// Blockers are the objects that currently block the removal. If there are many, only the first
	// ones are listed.
	// +optional
	Blockers []RemovalObject `json:"blockers,omitempty"`
	// Dependents are messages about objects that depend on the objects to remove. If there are
	// many, only the first ones are listed.
	// +optional
	Dependents []string `json:"dependents,omitempty"`
}
