package v1

// DriftMode says what happens when a managed object differs from what was applied.
// +kubebuilder:validation:Enum=Correct;Warn;Ignore
type DriftMode string

// Drift modes.
const (
	DriftCorrect DriftMode = "Correct"
	DriftWarn    DriftMode = "Warn"
	DriftIgnore  DriftMode = "Ignore"
)

// IgnoreTarget selects objects of an install. Empty fields match everything.
type IgnoreTarget struct {
	// Group of the objects, such as apps.
	Group string `json:"group,omitempty"`
	// Kind of the objects, such as Deployment.
	Kind string `json:"kind,omitempty"`
	// Namespace of the objects.
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name,omitempty"`
}

// IgnoreRule names fields that somebody else may change.
type IgnoreRule struct {
	// Target selects the objects; all of the install when unset.
	// +optional
	Target *IgnoreTarget `json:"target,omitempty"`

	// Paths are JSON pointers (RFC 6901). The field is sent when the object is
	// created and left alone from then on.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern="^(/[^/]+)+$"
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.all(p, !(p in ['/apiVersion', '/kind', '/metadata', '/metadata/name', '/metadata/namespace']))",message="what identifies an object can't be ignored: name a field below spec, data or another part of it"
	Paths []string `json:"paths"`
}

// Drift says how changes made by others are treated.
type Drift struct {
	// Mode is Correct (put it right), Warn (say it) or Ignore. Correct when unset.
	// +optional
	Mode DriftMode `json:"mode,omitempty"`

	// Ignore names fields that belong to others.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Ignore []IgnoreRule `json:"ignore,omitempty"`
}
