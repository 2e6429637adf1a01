package v1

// DriftMode specifies what happens if a managed object differs from what was applied.
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

// IgnoreRule lists fields that other clients may change.
type IgnoreRule struct {
	// Target selects the objects. Defaults to all objects of the install.
	// +optional
	Target *IgnoreTarget `json:"target,omitempty"`

	// Paths are JSON pointers (RFC 6901) to the fields. They are set when the object is created,
	// and are not changed after that. In place of the index of a list item, a path may have
	// [field=value], such as [name=main], for the items whose field has this value, or * for every
	// item.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern="^(/[^/]+)+$"
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.all(p, !(p in ['/apiVersion', '/kind', '/metadata', '/metadata/name', '/metadata/namespace']))",message="apiVersion, kind, metadata, metadata.name and metadata.namespace cannot be ignored: use a field below spec, data or another field"
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.matches('^(/([^/[]+|[[][^/=]+=[^/]*[]]))+$'))",message="a list item is an index, [field=value] or * between slashes, as in /spec/template/spec/containers/[name=main]/image"
	Paths []string `json:"paths"`
}

// Drift specifies how changes by other clients are handled.
type Drift struct {
	// Mode is Correct (revert the changes), Warn (only report them) or Ignore. Defaults to Correct.
	// +optional
	Mode DriftMode `json:"mode,omitempty"`

	// Ignore lists fields that other clients may change.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Ignore []IgnoreRule `json:"ignore,omitempty"`
}
