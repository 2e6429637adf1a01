package v1

import "k8s.io/apimachinery/pkg/types"

// ComponentStatus is how one component is doing.
type ComponentStatus struct {
	// Name of the component.
	Name string `json:"name"`
	// Version that is installed or being installed.
	// +optional
	Version string `json:"version,omitempty"`
	// DependsOn are the components that it needs.
	// +optional
	DependsOn []string `json:"dependsOn,omitempty"`
	// Ready is true when every object of the component is.
	Ready bool `json:"ready"`
	// Objects is the number of objects of the component.
	Objects int32 `json:"objects"`
	// Message says what the component waits for or what is wrong.
	// +optional
	Message string `json:"message,omitempty"`
	// Chart of a repository that the component was rendered from last.
	// +optional
	Chart *ChartStatus `json:"chart,omitempty"`
	// ChartDependencies are the charts of repositories that the component's chart in the
	// source depends on and does not bring in its folder charts/.
	// +optional
	ChartDependencies []ChartStatus `json:"chartDependencies,omitempty"`
}

// InstallRemoval is how far an install followed a KsctlRemove that names it. What
// that names is not installed from when this stands here, and until it is gone and a
// retryInterval has passed.
type InstallRemoval struct {
	// Name of the KsctlRemove, in the namespace of the install.
	Name string `json:"name"`
	// UID of it.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Generation of it that is followed.
	Generation int64 `json:"generation"`
	// Components that it names; all when empty.
	// +optional
	Components []string `json:"components,omitempty"`
	// Digest of the rehearsal that was taken up; until then nothing is deleted.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Kept are the objects that were asked to go and were left, and why; with many,
	// the first of them.
	// +optional
	Kept []RemovalObject `json:"kept,omitempty"`
}
