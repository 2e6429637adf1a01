package v1

// DeletionPolicy says what becomes of the objects of an install that is deleted.
// +kubebuilder:validation:Enum=Delete;Orphan
type DeletionPolicy string

// Deletion policies.
const (
	// DeletionDelete removes them.
	DeletionDelete DeletionPolicy = "Delete"
	// DeletionOrphan takes our label and marks off and leaves the rest.
	DeletionOrphan DeletionPolicy = "Orphan"
)

// Defaults of a Guard.
const (
	DefaultMaxDeletes       = 50
	DefaultMaxDeletePercent = 50
	// FewDeletes is how many objects may leave a stack without being counted in percent.
	FewDeletes = 10
)

// Guard bounds what a change of the source may delete. What is more is held
// until its digest is approved with the annotation ksctl.com/approve. The
// deletion of the install itself is not held.
type Guard struct {
	// MaxDeletes is how many objects may leave the stack at once. 50 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxDeletes *int32 `json:"maxDeletes,omitempty"`

	// MaxDeletePercent is how much of the install may leave the stack at once, in
	// percent of the objects that it had before the change: what comes in their place
	// does not count. It counts when more than 10 objects leave. 50 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxDeletePercent *int32 `json:"maxDeletePercent,omitempty"`

	// ProtectKinds are kinds whose objects are never deleted: where they would be,
	// also with the install, they are left without our label and marks.
	// PersistentVolumeClaim when unset; an empty list protects none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	ProtectKinds []string `json:"protectKinds,omitempty"`
}

// TakeOver names the install that another one follows.
type TakeOver struct {
	// Name of the install.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
