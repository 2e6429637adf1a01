package v1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InstallRef names a KsctlInstall of the same namespace.
type InstallRef struct {
	// Name of the install.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// KeepRule selects objects that a removal leaves. Fields that are unset select any.
type KeepRule struct {
	// Group of the kind; the group of Pods, ConfigMaps and PersistentVolumeClaims is "".
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

// CustomResourcesPolicy says what becomes of a definition that has objects which
// the stack did not bring.
// +kubebuilder:validation:Enum=Refuse;Delete
type CustomResourcesPolicy string

// Policies for custom resources.
const (
	// CustomResourcesRefuse leaves the definition until they are gone.
	CustomResourcesRefuse CustomResourcesPolicy = "Refuse"
	// CustomResourcesDelete deletes the definition, and with it all of them.
	CustomResourcesDelete CustomResourcesPolicy = "Delete"
)

// KsctlRemoveSpec says what is to be gone. It is named in one of two forms: by
// the install that owns it, or by the stack that something else installed.
//
// +kubebuilder:validation:XValidation:rule="has(self.installRef) != has(self.sourceRef)",message="set exactly one of installRef and sourceRef: whose objects to remove"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceRef) || has(self.stack)",message="sourceRef needs stack: what to look for"
// +kubebuilder:validation:XValidation:rule="has(self.sourceRef) || !(has(self.path) || has(self.stack) || has(self.stackVersion) || has(self.parameters) || has(self.choices) || has(self.charts) || has(self.decryption) || has(self.targetNamespace) || has(self.serviceAccountName) || has(self.approvedDigest) || has(self.clusterRef) || has(self.kubeConfig))",message="path, stack, stackVersion, parameters, choices, charts, decryption, targetNamespace, serviceAccountName, approvedDigest, clusterRef and kubeConfig go with sourceRef: an installRef has those of the install"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterRef) || !has(self.kubeConfig)",message="set at most one of clusterRef and kubeConfig: which cluster to remove from"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceRef) || self.sourceRef.kind != 'Catalog' || (has(self.stackVersion) && size(self.stackVersion) > 0)",message="a stack of the catalogue needs its stackVersion"
type KsctlRemoveSpec struct {
	Schedule `json:",inline"`

	// The cluster that the stack of sourceRef is removed from.
	TargetCluster `json:",inline"`

	// InstallRef names the install of this namespace whose objects are to go. While
	// the KsctlRemove exists they stay away; when it is deleted, the install brings
	// them back after its retryInterval.
	// +optional
	InstallRef *InstallRef `json:"installRef,omitempty"`

	// SourceRef names the source of a stack that something else installed: the
	// ksctl command line, kubectl or Helm. The stack tells what to look for.
	// +optional
	SourceRef *SourceRef `json:"sourceRef,omitempty"`

	// Path is the folder in the source that holds stack.yaml, or
	// <stack>/stack.yaml. The root of the source when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// Stack is the name of the stack.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Stack string `json:"stack,omitempty"`

	// StackVersion, when set, must be exactly the version that the stack in the
	// source declares.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	StackVersion string `json:"stackVersion,omitempty"`

	// Parameters are the stack-wide choices that it was installed with.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Parameters *apiextensionsv1.JSON `json:"parameters,omitempty"`

	// Choices are those for single components that it was installed with.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Choices []ComponentChoice `json:"choices,omitempty"`

	// Charts says how to reach repositories that charts of the stack come from. One
	// that is not listed is asked without credentials.
	// +optional
	// +listType=map
	// +listMapKey=repository
	// +kubebuilder:validation:MaxItems=64
	Charts []ChartRepository `json:"charts,omitempty"`

	// Decryption says how files of the source are decrypted that are encrypted with SOPS.
	// +optional
	Decryption *Decryption `json:"decryption,omitempty"`

	// TargetNamespace is where objects of the stack are looked for that name no
	// namespace and whose component names none. That of the KsctlRemove when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// ServiceAccountName is the account in this namespace whose rights are used for
	// every request to this cluster. The controller's --default-service-account when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Components to remove; all when empty.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:items:MaxLength=63
	Components []string `json:"components,omitempty"`

	// Keep selects objects that are left, without our label and marks. All of kind
	// PersistentVolumeClaim when unset; an empty list keeps none.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Keep []KeepRule `json:"keep,omitempty"`

	// CustomResources says what becomes of a definition that has objects which the
	// stack did not bring: it is left until they are gone (Refuse), or deleted with
	// all of them (Delete). Refuse when unset.
	// +optional
	CustomResources CustomResourcesPolicy `json:"customResources,omitempty"`

	// ApprovedDigest is that of status.removal, for the form with sourceRef: what it
	// lists is removed once it stands here.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ApprovedDigest string `json:"approvedDigest,omitempty"`
}

// KsctlRemoveStatus is how far a removal came.
type KsctlRemoveStatus struct {
	CommonStatus `json:",inline"`

	// LastAttemptedRevision is the source's revision that was looked at last.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// Removal is the rehearsal.
	// +optional
	Removal *Removal `json:"removal,omitempty"`

	// Removed is how many objects were seen to be gone.
	// +optional
	Removed *int32 `json:"removed,omitempty"`

	// Left is how many objects are still there, those that are kept among them.
	// +optional
	Left *int32 `json:"left,omitempty"`

	// Remaining are objects that are still there, and why; with many, the first of them.
	// +optional
	Remaining []RemovalObject `json:"remaining,omitempty"`

	// Inventory is what is removed in the form with sourceRef.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`

	// Cluster that has what is in the inventory, as in a KsctlInstall.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// ClusterUID is the uid of that cluster's namespace kube-system, as in a KsctlInstall.
	// +optional
	ClusterUID string `json:"clusterUID,omitempty"`
}

// KsctlRemove takes away what was installed, and keeps it away while it exists.
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

// Schedule says when the object is looked at again.
func (in *KsctlRemove) Schedule() *Schedule { return &in.Spec.Schedule }

// Names is true when a component is among those to remove.
func (in *KsctlRemoveSpec) Names(component string) bool {
	if len(in.Components) == 0 {
		return true
	}
	for _, c := range in.Components {
		if c == component {
			return true
		}
	}
	return false
}

// Keeps is true for an object that is left where it would be deleted.
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
