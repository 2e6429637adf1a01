package v1

// CRDPolicy is how the CustomResourceDefinitions in the folder crds/ of a chart are applied.
//
// +kubebuilder:validation:Enum=Apply;CreateOnly;Skip
type CRDPolicy string

// Policies for the CustomResourceDefinitions of a chart.
const (
	// CRDsApply creates and updates them, like other objects.
	CRDsApply CRDPolicy = "Apply"
	// CRDsCreateOnly creates the missing ones. Existing ones are neither changed nor adopted.
	CRDsCreateOnly CRDPolicy = "CreateOnly"
	// CRDsSkip leaves them out.
	CRDsSkip CRDPolicy = "Skip"
)

// HookPolicy is whether the hooks of a chart run.
//
// +kubebuilder:validation:Enum=Run;Skip
type HookPolicy string

// Policies for the hooks of a chart.
const (
	HooksRun HookPolicy = "Run"
	// HooksSkip leaves out all hooks: also those of a removal, and tests.
	HooksSkip HookPolicy = "Skip"
)
