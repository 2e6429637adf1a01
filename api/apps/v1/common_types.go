package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Condition types of every reconciled kind. Reconciling and Stalled are only present while they are
// true.
const (
	ReadyCondition       = "Ready"
	ReconcilingCondition = "Reconciling"
	StalledCondition     = "Stalled"
)

// Annotations that users set on objects of the reconciled kinds.
const (
	// RequestedAtAnnotation requests an immediate reconcile, as in Flux. The handled value is
	// written to status.lastHandledReconcileAt.
	RequestedAtAnnotation = "reconcile.fluxcd.io/requestedAt"
	// ApproveAnnotation approves held deletions. Its value is their digest.
	ApproveAnnotation = "ksctl.com/approve"
	// AbandonAnnotation on an object that is being deleted removes its finalizer, even if objects
	// that it owns still exist. Its value is the UID of the object.
	AbandonAnnotation = "ksctl.com/abandon"
	// RotateAnnotation on a KsctlInstall generates all values of a component's chart again, once
	// for each token. Its value is COMPONENT@TOKEN.
	RotateAnnotation = "ksctl.com/rotate"
	// TestAnnotation on a KsctlInstall runs the test hooks of its charts, once for each value. The
	// condition Tested has the result, and status.lastHandledTest the value of the last test that
	// has ended.
	TestAnnotation = "ksctl.com/test"
)

// Finalizer keeps a reconciled object until everything that it owns is removed.
const Finalizer = "ksctl.com/teardown"

// Schedule specifies when an object is reconciled. Durations are Go durations. They are stored as
// they are written.
//
// +kubebuilder:validation:XValidation:rule="!has(self.interval) || (!self.interval.matches('[0-9]{6}(h|m$|m[0-9])|[0-9]{8}s|[0-9]{11}') && duration(self.interval) >= duration('1s') && duration(self.interval) <= duration('720h'))",message="interval must be between 1s and 720h"
// +kubebuilder:validation:XValidation:rule="!has(self.retryInterval) || (!self.retryInterval.matches('[0-9]{6}(h|m$|m[0-9])|[0-9]{8}s|[0-9]{11}') && duration(self.retryInterval) >= duration('1s') && duration(self.retryInterval) <= duration('720h'))",message="retryInterval must be between 1s and 720h"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || (!self.timeout.matches('[0-9]{6}(h|m$|m[0-9])|[0-9]{8}s|[0-9]{11}') && duration(self.timeout) >= duration('1s') && duration(self.timeout) <= duration('720h'))",message="timeout must be between 1s and 720h"
type Schedule struct {
	// Interval is the maximum time until everything is verified against the source and the cluster
	// again. Changes are detected immediately; the interval is only a safety net. Defaults to 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// RetryInterval is the time after which a failed attempt is repeated. Defaults to 1m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`

	// Timeout is the time in which one wave should become ready. After that the object reports the
	// timeout, and the controller continues. Defaults to 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Suspend stops reconciling until it is set to false. A deletion of the object is still carried
	// out.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// WaitType is the reason why an object waits for another one.
type WaitType string

// Types of waits.
const (
	// WaitDependsOn: spec.dependsOn names the object, and it is not ready.
	WaitDependsOn WaitType = "DependsOn"
	// WaitPruning: objects that left the stack are kept until the install has planned, because it
	// may claim them.
	WaitPruning WaitType = "Pruning"
	// WaitTakeOver: as Pruning, for an install whose spec.takeOver names this one.
	WaitTakeOver WaitType = "TakeOver"
	// WaitNotApplied: objects that left the stack are kept until everything else is applied.
	WaitNotApplied WaitType = "NotApplied"
	// WaitKindNotServed: the cluster does not serve the kind.
	WaitKindNotServed WaitType = "KindNotServed"
	// WaitDependents: an install that depends on this object must be removed first.
	WaitDependents WaitType = "Dependents"
	// WaitRemoval: an install removes the objects of a KsctlRemove.
	WaitRemoval WaitType = "Removal"
	// WaitApproval: somebody has to approve, resume or correct something, such as a KsctlRemove.
	WaitApproval WaitType = "Approval"
	// WaitRollout: the rollout to other clusters comes first.
	WaitRollout WaitType = "Rollout"
	// WaitInUse: an object uses this one.
	WaitInUse WaitType = "InUse"
	// WaitDeletion: the deletion of the object is in progress. For objects in a namespace that is
	// being deleted, it is the namespace.
	WaitDeletion WaitType = "Deletion"
	// WaitOrder: an earlier component or hook comes first.
	WaitOrder WaitType = "Order"
	// WaitReadiness: the object is applied, and not ready.
	WaitReadiness WaitType = "Readiness"
	// WaitResponse: a watch, a server or a controller has not answered yet.
	WaitResponse WaitType = "Response"
)

// WaitReference is something that an object waits for.
type WaitReference struct {
	// Type of the wait.
	Type WaitType `json:"type"`
	// Kind of the object that is waited for.
	Kind string `json:"kind"`
	// Namespace of that object; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of that object.
	Name string `json:"name"`
	// Object of the stack that the wait is about, if that is another one.
	// +optional
	Object string `json:"object,omitempty"`
}

// String returns the kind, namespace and name of the object, such as "KsctlInstall ns/name".
func (w WaitReference) String() string {
	if w.Namespace == "" {
		return w.Kind + " " + w.Name
	}
	return w.Kind + " " + w.Namespace + "/" + w.Name
}

// CommonStatus is the part of the status that every reconciled kind has.
type CommonStatus struct {
	// ObservedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the object: Ready, and Reconciling or Stalled while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// WaitsFor are the objects that this object waits for, at most ten of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	WaitsFor []WaitReference `json:"waitsFor,omitempty"`

	// LastHandledReconcileAt is the last handled value of the annotation
	// reconcile.fluxcd.io/requestedAt.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`

	// ServiceAccount is the account that the controller last acted as for the object.
	// +optional
	ServiceAccount *AccountReference `json:"serviceAccount,omitempty"`
}

// AccountReference identifies a ServiceAccount of the object's namespace.
type AccountReference struct {
	// Name of the ServiceAccount.
	Name string `json:"name"`
	// UID of the ServiceAccount.
	UID types.UID `json:"uid"`
}
