package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindDeletionPolicy is what happens to the objects of a published kind when its KsctlKind is
// deleted.
type KindDeletionPolicy string

// Policies of KsctlKindSpec.DeletionPolicy.
const (
	KindDeletionRefuse KindDeletionPolicy = "Refuse"
	KindDeletionDelete KindDeletionPolicy = "Delete"
)

// KsctlKindSpec is a stack that is published as a kind.
//
// +kubebuilder:validation:XValidation:rule="self.sourceRef.kind == 'Catalog' || has(self.sourceRef.namespace)",message="sourceRef.namespace is required, because a KsctlKind has no namespace"
// +kubebuilder:validation:XValidation:rule="self.sourceRef.kind != 'Catalog' || (has(self.stackVersion) && size(self.stackVersion) > 0)",message="stackVersion is required for sourceRef.kind Catalog, so that an upgrade of the controller changes nothing"
// +kubebuilder:validation:XValidation:rule="self.sourceRef.kind != 'Catalog' || !has(self.path) || size(self.path) == 0",message="path is not allowed for sourceRef.kind Catalog"
type KsctlKindSpec struct {
	Schedule `json:",inline"`

	// SourceRef names the source that contains the stack.
	SourceRef SourceRef `json:"sourceRef"`

	// Path is the folder in the source that contains stack.yaml or <stack>/stack.yaml. Defaults to
	// the root of the source.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// Stack is the name of the stack. Its spec.serves describes the kind.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Stack string `json:"stack"`

	// StackVersion must be exactly the version that the stack in the source declares, if it is set.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	StackVersion string `json:"stackVersion,omitempty"`

	// ServiceAccountName is the service account in the namespace of each object whose permissions
	// are used for the requests of that object. Defaults to the controller's
	// --default-service-account.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// TargetNamespaces are the namespaces, besides that of an object, in which its stack may have
	// namespaced objects: names, or a prefix with * at its end. The permissions of the service
	// account still apply.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?|[a-z0-9][-a-z0-9]*\\*)$"
	TargetNamespaces []string `json:"targetNamespaces,omitempty"`

	// Decryption configures the decryption of SOPS-encrypted files of the stack. The Secret is in
	// the namespace of the source, or in that of the controller for sourceRef.kind Catalog.
	// +optional
	Decryption *Decryption `json:"decryption,omitempty"`

	// Rollout makes a new revision of the stack reach the objects step by step. Without it, a new
	// revision reaches all objects at once.
	// +optional
	Rollout *KindRollout `json:"rollout,omitempty"`

	// DeletionPolicy is what happens to the objects of the kind when the KsctlKind is deleted: with
	// Refuse it stays until there are none, with Delete they are deleted. Defaults to Refuse.
	// +optional
	// +kubebuilder:validation:Enum=Refuse;Delete
	DeletionPolicy KindDeletionPolicy `json:"deletionPolicy,omitempty"`
}

// KindRollout is how a new revision of the stack reaches the objects of a kind. An object that it
// has not reached stays at its revision. spec.timeout is the time that an object has to become
// Ready.
type KindRollout struct {
	// MaxConcurrent is the maximum number of objects that apply a revision at the same time.
	// Defaults to 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// OnFailure specifies whether a revision is rolled out to more objects after an object that was
	// Ready has failed with it. Defaults to Stop.
	// +optional
	OnFailure FailurePolicy `json:"onFailure,omitempty"`
}

// KindObjects counts the objects of a published kind.
type KindObjects struct {
	// Total is the number of objects.
	Total int32 `json:"total"`
	// Ready is the number of objects that are Ready.
	Ready int32 `json:"ready"`
	// Updated is the number of objects that have applied the current revision of the stack.
	Updated int32 `json:"updated"`
}

// KsctlKindStatus is the observed state of a published kind.
type KsctlKindStatus struct {
	CommonStatus `json:",inline"`

	// LastAttemptedRevision is the last revision of the source that was attempted.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// LastAppliedRevision is the last revision of the source whose kind is served.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// Artifact is the last revision of the stack that was rolled out to all objects. New objects
	// get it. It is unset without spec.rollout.
	// +optional
	Artifact *TakenArtifact `json:"artifact,omitempty"`

	// StackVersion is the version of the stack of that revision.
	// +optional
	StackVersion string `json:"stackVersion,omitempty"`

	// CRD is the name of the CustomResourceDefinition.
	// +optional
	CRD string `json:"crd,omitempty"`

	// ServedVersions are the versions that are served. The first one is stored.
	// +optional
	// +listType=atomic
	ServedVersions []string `json:"servedVersions,omitempty"`

	// Objects counts the objects of the kind.
	// +optional
	Objects *KindObjects `json:"objects,omitempty"`
}

// KsctlKind publishes a stack as a kind: each object of the kind is an install of the stack.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=kki,categories=all;fluxcd;ksctl
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
// +kubebuilder:printcolumn:name="CRD",type=string,JSONPath=".status.crd",priority=1
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=".status.objects.total",priority=1
type KsctlKind struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KsctlKindSpec `json:"spec,omitempty"`
	// +kubebuilder:default={observedGeneration:-1}
	Status KsctlKindStatus `json:"status,omitempty"`
}

// KsctlKindList is a list of KsctlKinds.
//
// +kubebuilder:object:root=true
type KsctlKindList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KsctlKind `json:"items"`
}

// CommonStatus returns the part of the status that every kind has.
func (k *KsctlKind) CommonStatus() *CommonStatus { return &k.Status.CommonStatus }

// Schedule returns the schedule of the spec.
func (k *KsctlKind) Schedule() *Schedule { return &k.Spec.Schedule }
