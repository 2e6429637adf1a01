package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// OperationKind is what an operation does.
type OperationKind string

// Operation kinds.
const (
	OperationScaleUp   OperationKind = "ScaleUp"
	OperationScaleDown OperationKind = "ScaleDown"
	// OperationRecount has ksctl's own agent have as many workers as have joined, after it failed
	// and did not say how far it had come.
	OperationRecount OperationKind = "Recount"
)

// OperationState is how an operation stands.
type OperationState string

// Operation states.
const (
	// OperationPending is one that is written down, and of which the agent may not know.
	OperationPending OperationState = "Pending"
	// OperationRunning is one that the agent has begun.
	OperationRunning OperationState = "Running"
	// OperationSucceeded and OperationFailed are ended.
	OperationSucceeded OperationState = "Succeeded"
	OperationFailed    OperationState = "Failed"
)

// ScaleOperation is the one that is at work, or ended last.
type ScaleOperation struct {
	// ID that the agent knows it by.
	ID string `json:"id"`

	// Kind of the operation.
	Kind OperationKind `json:"kind"`

	// Pool whose machines it makes or deletes.
	Pool string `json:"pool"`

	// From is how many workers the cluster had.
	From int32 `json:"from"`

	// DesiredWorkers is how many workers the cluster is to have.
	DesiredWorkers int32 `json:"desiredWorkers"`

	// GivenUp is how many of its machines were said not to be had, as they took too long.
	// +optional
	GivenUp int32 `json:"givenUp,omitempty"`

	// NodeSize of machines that are made.
	// +optional
	NodeSize string `json:"nodeSize,omitempty"`

	// RequestedAt is when Cluster Autoscaler asked for it, which may be long before; unset where
	// minSize asks for its machines, and for deletions.
	// +optional
	RequestedAt *metav1.Time `json:"requestedAt,omitempty"`

	// StartedAt is when it was written down.
	StartedAt metav1.Time `json:"startedAt"`

	// EndedAt is when it ended.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`

	// State of the operation.
	State OperationState `json:"state"`

	// Code of why it failed.
	// +optional
	Code string `json:"code,omitempty"`

	// Unsettled is true while it is not known how far an operation came that failed: ksctl's own agent
	// does not say. Nothing is made meanwhile.
	// +optional
	Unsettled bool `json:"unsettled,omitempty"`

	// Message says more, for a person.
	// +optional
	Message string `json:"message,omitempty"`
}

// WorkerSize is of what size a worker is.
type WorkerSize struct {
	// Index in the name of the machine.
	Index int32 `json:"index"`

	// NodeSize in the cloud's words.
	NodeSize string `json:"nodeSize"`
}

// AutoscalerStatus is how Cluster Autoscaler itself stands.
type AutoscalerStatus struct {
	// Version that is meant to run.
	// +optional
	Version string `json:"version,omitempty"`

	// Deployment in this namespace that it runs in.
	// +optional
	Deployment string `json:"deployment,omitempty"`

	// ConfigHash is of its flags and certificates: when it changes, it starts anew.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`

	// LastProbeTime is when it last said how it is, in its ConfigMap in the cluster.
	// +optional
	LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"`

	// Flags that the spec means, for one that is not installed here.
	// +optional
	// +listType=atomic
	Flags []string `json:"flags,omitempty"`
}

// KsctlAutoScalerStatus is how the scaling of a cluster stands.
type KsctlAutoScalerStatus struct {
	appsv1.CommonStatus `json:",inline"`

	// Autoscaler is how Cluster Autoscaler stands.
	// +optional
	Autoscaler *AutoscalerStatus `json:"autoscaler,omitempty"`

	// Operation that is at work, or ended last.
	// +optional
	Operation *ScaleOperation `json:"operation,omitempty"`

	// Pools are how each pool stands.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []WorkerPoolStatus `json:"pools,omitempty"`

	// Workers is how many the cluster has, whatever pool they are of.
	// +optional
	Workers int32 `json:"workers,omitempty"`

	// ImportedWorkers is how many the imported state had when it was last known otherwise how many
	// there are. It counts again when it says something else.
	// +optional
	ImportedWorkers *int32 `json:"importedWorkers,omitempty"`

	// WorkerSizes are what sizes workers are of, as far as that is known, where the agent does not say it.
	// +optional
	// +listType=map
	// +listMapKey=index
	WorkerSizes []WorkerSize `json:"workerSizes,omitempty"`

	// UnmanagedWorkers are of no pool: no pool has their size.
	// +optional
	UnmanagedWorkers int32 `json:"unmanagedWorkers,omitempty"`
}
