package v1

// DeletionPolicy specifies what happens to the objects of an install when it is deleted.
// +kubebuilder:validation:Enum=Delete;Orphan
type DeletionPolicy string

// Deletion policies.
const (
	// DeletionDelete deletes the objects.
	DeletionDelete DeletionPolicy = "Delete"
	// DeletionOrphan keeps the objects, and removes the controller's label and annotations from
	// them.
	DeletionOrphan DeletionPolicy = "Orphan"
)

// Defaults of a Guard.
const (
	DefaultMaxDeletes       = 50
	DefaultMaxDeletePercent = 50
	// FewDeletes is the number of objects up to which MaxDeletePercent does not apply.
	FewDeletes = 10
)

// Guard limits the deletions that a change of the source may cause. Deletions above a limit are
// held until their digest is approved with the annotation ksctl.com/approve. The deletion of the
// install itself is not limited.
type Guard struct {
	// MaxDeletes is the maximum number of objects that may leave the stack at once. Defaults to 50.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxDeletes *int32 `json:"maxDeletes,omitempty"`

	// MaxDeletePercent is the maximum percentage of the install's objects that may leave the stack
	// at once. It refers to the objects before the change: objects that the change adds are not
	// counted. It only applies if more than 10 objects leave. Defaults to 50.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxDeletePercent *int32 `json:"maxDeletePercent,omitempty"`

	// ProtectKinds lists kinds whose objects are never deleted, not even with the install. Instead
	// of a deletion, the controller's label and annotations are removed from them. Defaults to
	// PersistentVolumeClaim. An empty list protects no kinds.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	ProtectKinds []string `json:"protectKinds,omitempty"`
}

// TakeOver names the install whose objects another install takes over.
type TakeOver struct {
	// Name of the install.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
