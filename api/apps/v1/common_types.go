package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of every reconciled kind. Reconciling and Stalled are present only while true.
const (
	ReadyCondition       = "Ready"
	ReconcilingCondition = "Reconciling"
	StalledCondition     = "Stalled"
)

// Annotations that users set on our objects, as in Flux.
const (
	// RequestedAtAnnotation asks for a reconcile now; the value is answered in status.lastHandledReconcileAt.
	RequestedAtAnnotation = "reconcile.fluxcd.io/requestedAt"
	// ApproveAnnotation has the digest of what is held until a person approves it.
	ApproveAnnotation = "ksctl.com/approve"
	// AbandonAnnotation on an object that is being deleted, with its uid as value,
	// lets it go whatever of what it owns is left.
	AbandonAnnotation = "ksctl.com/abandon"
)

// Finalizer keeps an object of ours until what it owns is gone.
const Finalizer = "ksctl.com/teardown"

// Schedule says when a reconciled object is looked at again. Durations are Go
// durations; they are kept as written.
//
// +kubebuilder:validation:XValidation:rule="!has(self.interval) || (duration(self.interval) >= duration('1s') && duration(self.interval) <= duration('720h'))",message="interval must be between 1s and 720h"
// +kubebuilder:validation:XValidation:rule="!has(self.retryInterval) || (duration(self.retryInterval) >= duration('1s') && duration(self.retryInterval) <= duration('720h'))",message="retryInterval must be between 1s and 720h"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || (duration(self.timeout) >= duration('1s') && duration(self.timeout) <= duration('720h'))",message="timeout must be between 1s and 720h"
type Schedule struct {
	// Interval is the longest time until everything is verified against the
	// source and the cluster again. Changes are noticed at once; this is the
	// safety net. 10m when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// RetryInterval is the time until a failed attempt is repeated. 1m when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`

	// Timeout is how long one wave may take to become ready before the object
	// says so. The work goes on. 5m when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Suspend stops reconciling until it is false again. Deletion of the object
	// is still carried out.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// CommonStatus is the part of the status that every reconciled kind has.
type CommonStatus struct {
	// ObservedGeneration is the generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the object: Ready, and Reconciling or Stalled while true.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// LastHandledReconcileAt is the last reconcile.fluxcd.io/requestedAt that was answered.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
}
