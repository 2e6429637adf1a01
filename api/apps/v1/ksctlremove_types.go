package v1

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InstallRef names a KsctlInstall in the same namespace.
type InstallRef struct {
	// Name of the install.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// KeepRule selects objects that a removal keeps. Unset fields match everything.
type KeepRule struct {
	// Group of the objects. The group of Pods, ConfigMaps and PersistentVolumeClaims is "".
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group *string `json:"group,omitempty"`

	// Kind of the objects.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Namespace of the objects.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// CustomResourcesPolicy specifies what happens to a CustomResourceDefinition with objects that the
// stack did not create.
// +kubebuilder:validation:Enum=Refuse;Delete
type CustomResourcesPolicy string

// Policies for custom resources.
const (
	// CustomResourcesRefuse keeps the CustomResourceDefinition until these objects are deleted.
	CustomResourcesRefuse CustomResourcesPolicy = "Refuse"
	// CustomResourcesDelete deletes the CustomResourceDefinition, and with it all of its objects.
	CustomResourcesDelete CustomResourcesPolicy = "Delete"
)

// KsctlRemoveSpec specifies the objects to remove, in one of two forms: by the install that owns
// them, or by the stack that another tool installed.
//
// +kubebuilder:validation:XValidation:rule="has(self.installRef) != has(self.sourceRef)",message="set exactly one of installRef and sourceRef"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceRef) || has(self.stack)",message="sourceRef requires stack"
// +kubebuilder:validation:XValidation:rule="has(self.sourceRef) || !(has(self.path) || has(self.stack) || has(self.stackVersion) || has(self.parameters) || has(self.choices) || has(self.charts) || has(self.decryption) || has(self.targetNamespace) || has(self.serviceAccountName) || has(self.approvedDigest) || has(self.clusterRef) || has(self.kubeConfig))",message="path, stack, stackVersion, parameters, choices, charts, decryption, targetNamespace, serviceAccountName, approvedDigest, clusterRef and kubeConfig are only allowed with sourceRef"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterRef) || !has(self.kubeConfig)",message="set at most one of clusterRef and kubeConfig"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceRef) || self.sourceRef.kind != 'Catalog' || (has(self.stackVersion) && size(self.stackVersion) > 0)",message="stackVersion is required for sourceRef.kind Catalog"
type KsctlRemoveSpec struct {
	Schedule `json:",inline"`

	// TargetCluster is the cluster that the stack of sourceRef is removed from.
	TargetCluster `json:",inline"`

	// InstallRef names the install in this namespace whose objects are removed. They stay removed
	// while the KsctlRemove exists. After it is deleted, the install creates them again after its
	// retryInterval.
	// +optional
	InstallRef *InstallRef `json:"installRef,omitempty"`

	// SourceRef names the source of a stack that another tool installed: the ksctl command line,
	// kubectl or Helm. The stack defines the objects to look for.
	// +optional
	SourceRef *SourceRef `json:"sourceRef,omitempty"`

	// Path is the folder in the source that contains stack.yaml or <stack>/stack.yaml. Defaults to
	// the root of the source.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// Stack is the name of the stack.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Stack string `json:"stack,omitempty"`

	// StackVersion must be exactly the version that the stack in the source declares, if it is set.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	StackVersion string `json:"stackVersion,omitempty"`

	// Parameters are the values of stack-wide parameters that the stack was installed with.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Parameters *apiextensionsv1.JSON `json:"parameters,omitempty"`

	// Choices are the configurations of individual components that the stack was installed with.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Choices []ComponentChoice `json:"choices,omitempty"`

	// Charts configures the access to chart repositories of the stack. Repositories that are not
	// listed are accessed without credentials.
	// +optional
	// +listType=map
	// +listMapKey=repository
	// +kubebuilder:validation:MaxItems=64
	Charts []ChartRepository `json:"charts,omitempty"`

	// Decryption configures the decryption of SOPS-encrypted files in the source.
	// +optional
	Decryption *Decryption `json:"decryption,omitempty"`

	// TargetNamespace is the namespace of the stack's namespaced objects if neither they nor their
	// component specify one. Defaults to the namespace of the KsctlRemove.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// ServiceAccountName is the service account in this namespace whose permissions are used for
	// every request to this cluster. Defaults to the controller's --default-service-account.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Components to remove. Empty means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:items:MaxLength=63
	Components []string `json:"components,omitempty"`

	// Keep selects objects that are kept. The controller's label and annotations are removed from
	// them. Defaults to all objects of kind PersistentVolumeClaim. An empty list keeps no objects.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Keep []KeepRule `json:"keep,omitempty"`

	// CustomResources specifies what happens to a CustomResourceDefinition with objects that the
	// stack did not create: it is kept until they are deleted (Refuse), or deleted with all of its
	// objects (Delete). Defaults to Refuse.
	// +optional
	CustomResources CustomResourcesPolicy `json:"customResources,omitempty"`

	// ApprovedDigest is the digest of status.removal that is approved, in the form with sourceRef.
	// The objects that status.removal lists are removed once both digests are equal.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ApprovedDigest string `json:"approvedDigest,omitempty"`
}

// KsctlRemoveStatus is the observed state of a removal.
type KsctlRemoveStatus struct {
	CommonStatus `json:",inline"`

	// LastAttemptedRevision is the last revision of the source that was attempted.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// Removal is the preview of the removal.
	// +optional
	Removal *Removal `json:"removal,omitempty"`

	// Removed is the number of objects that are confirmed to be removed.
	// +optional
	Removed *int32 `json:"removed,omitempty"`

	// Left is the number of objects that still exist, including kept objects.
	// +optional
	Left *int32 `json:"left,omitempty"`

	// Remaining are objects that still exist, with the reason. If there are many, only the first
	// ones are listed.
	// +optional
	Remaining []RemovalObject `json:"remaining,omitempty"`

	// Inventory lists the objects to remove, in the form with sourceRef.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`

	// Cluster is the cluster with the objects in the inventory, in the same format as in a
	// KsctlInstall.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// ClusterUID is the UID of the namespace kube-system of the cluster in status.cluster, as in a
	// KsctlInstall.
	// +optional
	ClusterUID string `json:"clusterUID,omitempty"`
}

// KsctlRemove removes installed objects, and keeps them removed while it exists.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=krm;ksrm,categories=all;fluxcd;ksctl
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Removed",type=integer,JSONPath=".status.removed"
// +kubebuilder:printcolumn:name="Left",type=integer,JSONPath=".status.left"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
// +kubebuilder:printcolumn:name="Install",type=string,JSONPath=".spec.installRef.name",priority=1
// +kubebuilder:printcolumn:name="Stack",type=string,JSONPath=".spec.stack",priority=1
// +kubebuilder:printcolumn:name="Digest",type=string,JSONPath=".status.removal.digest",priority=1
type KsctlRemove struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KsctlRemoveSpec `json:"spec"`
	// +kubebuilder:default={observedGeneration:-1}
	Status KsctlRemoveStatus `json:"status,omitempty"`
}

// KsctlRemoveList is a list of KsctlRemoves.
//
// +kubebuilder:object:root=true
type KsctlRemoveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KsctlRemove `json:"items"`
}

// CommonStatus returns the part of the status that every kind has.
func (in *KsctlRemove) CommonStatus() *CommonStatus { return &in.Status.CommonStatus }

// Schedule returns the schedule of the spec.
func (in *KsctlRemove) Schedule() *Schedule { return &in.Spec.Schedule }

// Names reports whether a component is removed.
func (in *KsctlRemoveSpec) Names(component string) bool {
	return len(in.Components) == 0 || slices.Contains(in.Components, component)
}

// Keeps reports whether an object is kept instead of deleted.
func (in *KsctlRemoveSpec) Keeps(group, kind, namespace, name string) bool {
	if in.Keep == nil {
		return group == "" && kind == "PersistentVolumeClaim"
	}
	for i := range in.Keep {
		if k := &in.Keep[i]; k.Kind == kind && (k.Group == nil || *k.Group == group) &&
			(k.Namespace == "" || k.Namespace == namespace) && (k.Name == "" || k.Name == name) {
			return true
		}
	}
	return false
}
