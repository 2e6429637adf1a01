package v1

import "k8s.io/apimachinery/pkg/types"

// ComponentStatus is the observed state of one component.
type ComponentStatus struct {
	// Name of the component.
	Name string `json:"name"`
	// Version that is installed or being installed.
	// +optional
	Version string `json:"version,omitempty"`
	// DependsOn are the names of the components that this component depends on.
	// +optional
	DependsOn []string `json:"dependsOn,omitempty"`
	// Ready is true if every object of the component is ready.
	Ready bool `json:"ready"`
	// Objects is the number of objects of the component.
	Objects int32 `json:"objects"`
	// Message states what the component waits for, or what is wrong.
	// +optional
	Message string `json:"message,omitempty"`
	// Release is the release of the component's chart.
	// +optional
	Release *ComponentRelease `json:"release,omitempty"`
	// Notes is the beginning of what the component's chart tells its users (NOTES.txt).
	// +optional
	Notes string `json:"notes,omitempty"`
	// Chart is the repository chart that the component was last rendered from.
	// +optional
	Chart *ChartStatus `json:"chart,omitempty"`
	// ChartDependencies are the repository charts that the component's chart in the source depends
	// on and does not contain in its folder charts/.
	// +optional
	ChartDependencies []ChartStatus `json:"chartDependencies,omitempty"`
}

// ComponentRelease is a release of a chart component. A component that is removed loses it with its
// last object: coming back is an install.
type ComponentRelease struct {
	// Revision is 1 for an install; later ones are upgrades. It is what templates see as
	// .Release.Revision.
	Revision int32 `json:"revision"`
	// Digest is a keyed hash of the chart, the merged values, the images, replicas and patches, and
	// the name and namespace of the release. Another digest is another revision, unless the install
	// is not complete.
	Digest string `json:"digest"`
	// Complete is true once everything of the release was applied and its hooks are done.
	// +optional
	Complete bool `json:"complete,omitempty"`
}

// InstallRemoval is a KsctlRemove that names the install, and the progress of the install with it.
// While it is listed, the components that the KsctlRemove names are not installed. It is listed
// until the KsctlRemove is deleted and the install's retryInterval has passed.
type InstallRemoval struct {
	// Name of the KsctlRemove, which is in the namespace of the install.
	Name string `json:"name"`
	// UID of the KsctlRemove.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Generation of the KsctlRemove that is carried out.
	Generation int64 `json:"generation"`
	// Components that the KsctlRemove names. Empty means all.
	// +optional
	Components []string `json:"components,omitempty"`
	// Digest of the removal preview that the install has accepted. Nothing is deleted until it is
	// set.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Kept are the objects whose removal was requested and that were kept, with the reason. If
	// there are many, only the first ones are listed.
	// +optional
	Kept []RemovalObject `json:"kept,omitempty"`
}
