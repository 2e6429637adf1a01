package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineCapacity is what a machine has, before anything is taken off for the system.
type MachineCapacity struct {
	// CPU of the machine.
	CPU resource.Quantity `json:"cpu"`

	// Memory of the machine.
	Memory resource.Quantity `json:"memory"`

	// EphemeralStorage of the machine. 20Gi when unset.
	// +optional
	EphemeralStorage *resource.Quantity `json:"ephemeralStorage,omitempty"`

	// Pods that it may run. 110 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Pods *int32 `json:"pods,omitempty"`
}

// WorkerPool is the workers of one machine size.
//
// +kubebuilder:validation:XValidation:rule="self.minSize <= self.maxSize",message="minSize must not be more than maxSize"
type WorkerPool struct {
	// Name of the pool.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`

	// NodeSize is the size of its machines in the cloud's words, such as t3.medium. It
	// tells the workers of one pool from those of another.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	NodeSize string `json:"nodeSize"`

	// MinSize is the least number of machines.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	MinSize int32 `json:"minSize"`

	// MaxSize is the most machines that are ever asked for.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	MaxSize int32 `json:"maxSize"`

	// Priority of the pool where expanders has Priority; the highest one that fits is used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// Labels of its nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// Taints of its nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []corev1.Taint `json:"taints,omitempty"`

	// Capacity of a machine, where no node of the pool is there to look at and the size is
	// not one that is known.
	// +optional
	Capacity *MachineCapacity `json:"capacity,omitempty"`
}

// TemplateSource says what a pool's next node is thought to be like.
type TemplateSource string

// Template sources.
const (
	// TemplateNode is a node of the pool.
	TemplateNode TemplateSource = "Node"
	// TemplateCatalog is the catalogue of sizes.
	TemplateCatalog TemplateSource = "Catalog"
	// TemplateOverride is capacity in the spec.
	TemplateOverride TemplateSource = "Override"
	// TemplateUnknown is a guess: nothing says what a machine of that size has.
	TemplateUnknown TemplateSource = "Unknown"
)

// PoolBackoff is how long a pool is left alone after a failure.
type PoolBackoff struct {
	// Operation that failed: after ScaleUp nothing is made until then, after ScaleDown nothing
	// is deleted.
	Operation OperationKind `json:"operation"`

	// Until then it is left alone.
	Until metav1.Time `json:"until"`

	// Code of what failed.
	Code string `json:"code"`

	// Message says more, for a person.
	Message string `json:"message"`

	// Failures one after the other.
	Failures int32 `json:"failures"`

	// Missing machines that were asked for and could not be made, until Cluster Autoscaler
	// has taken note.
	// +optional
	Missing int32 `json:"missing,omitempty"`

	// From is how many workers there were before machines of another size were made than were asked
	// for (OtherSize): nothing is made for the pool while one of those behind them is of no pool.
	// +optional
	From int32 `json:"from,omitempty"`
}

// PoolScale is a change of a pool.
type PoolScale struct {
	// Time of the change.
	Time metav1.Time `json:"time"`

	// From so many machines, and To so many.
	From int32 `json:"from"`

	// To so many machines.
	To int32 `json:"to"`

	// Reason for it.
	Reason string `json:"reason"`
}

// WorkerPoolStatus is how a pool stands.
type WorkerPoolStatus struct {
	// Name of the pool.
	Name string `json:"name"`

	// NodeGroupID is what Cluster Autoscaler knows the pool by.
	NodeGroupID string `json:"nodeGroupID"`

	// Target is how many machines the pool is to have.
	Target int32 `json:"target"`

	// Change is how many machines are asked for and not begun, or, where it is negative, how
	// many are to go.
	// +optional
	Change int32 `json:"change,omitempty"`

	// Registered is how many nodes have joined.
	Registered int32 `json:"registered"`

	// Ready is how many of them are.
	Ready int32 `json:"ready"`

	// Creating is how many machines are being made, or have not joined yet.
	Creating int32 `json:"creating"`

	// Deleting is how many machines are being deleted.
	Deleting int32 `json:"deleting"`

	// TemplateSource says what the pool's next node is thought to be like.
	TemplateSource TemplateSource `json:"templateSource"`

	// Backoff after a failure.
	// +optional
	Backoff *PoolBackoff `json:"backoff,omitempty"`

	// LastScale is the last change.
	// +optional
	LastScale *PoolScale `json:"lastScale,omitempty"`
}
