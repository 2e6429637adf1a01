package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineCapacity is the capacity of a machine, including the resources that are reserved for the
// system.
type MachineCapacity struct {
	// CPU of the machine.
	CPU resource.Quantity `json:"cpu"`

	// Memory of the machine.
	Memory resource.Quantity `json:"memory"`

	// EphemeralStorage of the machine. Defaults to 20Gi.
	// +optional
	EphemeralStorage *resource.Quantity `json:"ephemeralStorage,omitempty"`

	// Pods is the maximum number of pods on the machine. Defaults to 110.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Pods *int32 `json:"pods,omitempty"`
}

// WorkerPool is a group of workers with the same machine size.
//
// +kubebuilder:validation:XValidation:rule="self.minSize <= self.maxSize",message="minSize must not be more than maxSize"
type WorkerPool struct {
	// Name of the pool.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`

	// NodeSize is the machine size, in the naming of the cloud, such as t3.medium. It distinguishes
	// the workers of different pools.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	NodeSize string `json:"nodeSize"`

	// MinSize is the minimum number of machines.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	MinSize int32 `json:"minSize"`

	// MaxSize is the maximum number of machines that are ever requested.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	MaxSize int32 `json:"maxSize"`

	// Priority of the pool, if expanders contains Priority. The pool with the highest priority that
	// fits is used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// Labels of the pool's nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// Taints of the pool's nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []corev1.Taint `json:"taints,omitempty"`

	// Capacity of a machine. It is needed if the pool has no node to derive the capacity from, and
	// the machine size is not in the size catalog.
	// +optional
	Capacity *MachineCapacity `json:"capacity,omitempty"`
}

// TemplateSource is the source of the expected properties of a pool's next node.
type TemplateSource string

// Template sources.
const (
	// TemplateNode is an existing node of the pool.
	TemplateNode TemplateSource = "Node"
	// TemplateCatalog is the size catalog.
	TemplateCatalog TemplateSource = "Catalog"
	// TemplateOverride is the capacity in the spec.
	TemplateOverride TemplateSource = "Override"
	// TemplateUnknown is a guess, because the capacity of machines of this size is unknown.
	TemplateUnknown TemplateSource = "Unknown"
)

// PoolBackoff is the time for which a pool is not scaled after a failure.
type PoolBackoff struct {
	// Operation that failed. During the backoff no machines are created after a failed ScaleUp, and
	// no machines are deleted after a failed ScaleDown.
	Operation OperationKind `json:"operation"`

	// Until is the end of the backoff.
	Until metav1.Time `json:"until"`

	// Code is the failure code.
	Code string `json:"code"`

	// Message is a human-readable description of the failure.
	Message string `json:"message"`

	// Failures is the number of consecutive failures.
	Failures int32 `json:"failures"`

	// Missing is the number of machines that were requested and could not be created. It is reset
	// when Cluster Autoscaler has registered the failure.
	// +optional
	Missing int32 `json:"missing,omitempty"`

	// From is the number of workers before machines with another size than the requested one were
	// created (code OtherSize). No machines are created for the pool while one of the workers after
	// these belongs to no pool.
	// +optional
	From int32 `json:"from,omitempty"`
}

// PoolScale is a change of the size of a pool.
type PoolScale struct {
	// Time of the change.
	Time metav1.Time `json:"time"`

	// From is the number of machines before the change.
	From int32 `json:"from"`

	// To is the number of machines after the change.
	To int32 `json:"to"`

	// Reason for the change.
	Reason string `json:"reason"`
}

// WorkerPoolStatus is the observed state of a pool.
type WorkerPoolStatus struct {
	// Name of the pool.
	Name string `json:"name"`

	// NodeGroupID is the id of the pool in Cluster Autoscaler.
	NodeGroupID string `json:"nodeGroupID"`

	// Target is the desired number of machines of the pool.
	Target int32 `json:"target"`

	// Change is the number of machines that are requested and whose creation has not started. A
	// negative number is the number of machines that will be deleted.
	// +optional
	Change int32 `json:"change,omitempty"`

	// Registered is the number of nodes that have joined the cluster.
	Registered int32 `json:"registered"`

	// Ready is the number of registered nodes that are ready.
	Ready int32 `json:"ready"`

	// Creating is the number of machines that are being created or have not joined the cluster yet.
	Creating int32 `json:"creating"`

	// Deleting is the number of machines that are being deleted.
	Deleting int32 `json:"deleting"`

	// TemplateSource is the source of the expected properties of the pool's next node.
	TemplateSource TemplateSource `json:"templateSource"`

	// Backoff after a failure.
	// +optional
	Backoff *PoolBackoff `json:"backoff,omitempty"`

	// LastScale is the last change of the size of the pool.
	// +optional
	LastScale *PoolScale `json:"lastScale,omitempty"`
}
