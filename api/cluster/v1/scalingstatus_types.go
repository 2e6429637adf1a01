package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// OperationKind is the kind of a scale operation.
type OperationKind string

// Operation kinds.
const (
	OperationScaleUp   OperationKind = "ScaleUp"
	OperationScaleDown OperationKind = "ScaleDown"
	// OperationRecount sets the number of workers of ksctl's own agent to the number of workers
	// that have joined, after an operation failed and the agent did not report its progress.
	OperationRecount OperationKind = "Recount"
)

// OperationState is the state of a scale operation.
type OperationState string

// Operation states.
const (
	// OperationPending is an operation that is recorded. The agent may not have received it yet.
	OperationPending OperationState = "Pending"
	// OperationRunning is an operation that the agent has started.
	OperationRunning OperationState = "Running"
	// OperationSucceeded and OperationFailed are completed operations.
	OperationSucceeded OperationState = "Succeeded"
	OperationFailed    OperationState = "Failed"
)

// ScaleOperation is the operation that is in progress, or the last one that was completed.
type ScaleOperation struct {
	// ID of the operation, which is sent to the agent.
	ID string `json:"id"`

	// Kind of the operation.
	Kind OperationKind `json:"kind"`

	// Pool whose machines are created or deleted.
	Pool string `json:"pool"`

	// From is the number of workers of the cluster before the operation.
	From int32 `json:"from"`

	// DesiredWorkers is the number of workers of the cluster after the operation.
	DesiredWorkers int32 `json:"desiredWorkers"`

	// GivenUp is the number of machines of the operation that were reported as failed to Cluster
	// Autoscaler, because their creation took too long.
	// +optional
	GivenUp int32 `json:"givenUp,omitempty"`

	// NodeSize is the size of the machines to create.
	// +optional
	NodeSize string `json:"nodeSize,omitempty"`

	// RequestedAt is the time at which Cluster Autoscaler requested the machines, which may be long
	// before startedAt. Unset for machines that minSize requires, and for deletions.
	// +optional
	RequestedAt *metav1.Time `json:"requestedAt,omitempty"`

	// StartedAt is the time at which the operation was recorded.
	StartedAt metav1.Time `json:"startedAt"`

	// EndedAt is the time at which the operation was completed.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`

	// State of the operation.
	State OperationState `json:"state"`

	// Code is the failure code.
	// +optional
	Code string `json:"code,omitempty"`

	// Unsettled is true while the result of a failed operation is unknown, because ksctl's own
	// agent does not report it. No machines are created during that time.
	// +optional
	Unsettled bool `json:"unsettled,omitempty"`

	// Message is a human-readable description of the state.
	// +optional
	Message string `json:"message,omitempty"`
}

// WorkerSize is the machine size of a worker.
type WorkerSize struct {
	// Index is the number in the name of the machine.
	Index int32 `json:"index"`

	// NodeSize is the machine size, in the naming of the cloud.
	NodeSize string `json:"nodeSize"`
}

// AutoscalerStatus is the observed state of Cluster Autoscaler.
type AutoscalerStatus struct {
	// Version is the desired version of Cluster Autoscaler.
	// +optional
	Version string `json:"version,omitempty"`

	// Deployment is the name of its Deployment in this namespace.
	// +optional
	Deployment string `json:"deployment,omitempty"`

	// ConfigHash is a hash of its flags and certificates. Cluster Autoscaler is restarted when the
	// hash changes.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`

	// LastProbeTime is the last time at which Cluster Autoscaler reported its status, in its
	// ConfigMap in the cluster.
	// +optional
	LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"`

	// Flags are the flags that correspond to the spec, for a Cluster Autoscaler that the controller
	// does not install.
	// +optional
	// +listType=atomic
	Flags []string `json:"flags,omitempty"`
}

// KsctlAutoScalerStatus is the observed state of the scaling of a cluster.
type KsctlAutoScalerStatus struct {
	appsv1.CommonStatus `json:",inline"`

	// Autoscaler is the observed state of Cluster Autoscaler.
	// +optional
	Autoscaler *AutoscalerStatus `json:"autoscaler,omitempty"`

	// Operation is the operation that is in progress, or the last one that was completed.
	// +optional
	Operation *ScaleOperation `json:"operation,omitempty"`

	// Pools are the observed states of the pools.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []WorkerPoolStatus `json:"pools,omitempty"`

	// Workers is the number of workers of the cluster, in all pools and in no pool.
	// +optional
	Workers int32 `json:"workers,omitempty"`

	// ImportedWorkers is the number of workers in the imported state at the time when the number of
	// workers was last known from another source. The imported number is ignored until it changes.
	// +optional
	ImportedWorkers *int32 `json:"importedWorkers,omitempty"`

	// WorkerSizes are the known machine sizes of workers. They are only stored if the agent does
	// not report sizes.
	// +optional
	// +listType=map
	// +listMapKey=index
	WorkerSizes []WorkerSize `json:"workerSizes,omitempty"`

	// UnmanagedWorkers is the number of workers that belong to no pool, because no pool has their
	// size.
	// +optional
	UnmanagedWorkers int32 `json:"unmanagedWorkers,omitempty"`
}
