package v1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CatalogKind is the kind of source that stands for the stacks which the
// controller ships.
const CatalogKind = "Catalog"

// SourceRef names the source that holds the stack.
//
// +kubebuilder:validation:XValidation:rule="self.kind == 'Catalog' ? !has(self.name) && !has(self.namespace) : has(self.name)",message="a source needs its name; the catalogue has neither name nor namespace"
type SourceRef struct {
	// Kind of the source: a Flux source, a KsctlSource, or Catalog for the stacks
	// that the controller ships.
	// +kubebuilder:validation:Enum=GitRepository;OCIRepository;Bucket;ExternalArtifact;KsctlSource;Catalog
	Kind string `json:"kind"`

	// Name of the source.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Namespace of the source; that of the install when unset. Another one is
	// refused when the controller runs with --no-cross-namespace-refs.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// ComponentChoice is what one install wants of one component of the stack.
type ComponentChoice struct {
	// Name of the component in the stack.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Version pins the component; the stack's default when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// Digest that the chart of that version must have, where it comes from a
	// repository; that of the stack for the stack's own version when unset.
	// +optional
	// +kubebuilder:validation:Pattern="^sha256:[0-9a-f]{64}$"
	Digest string `json:"digest,omitempty"`

	// Enabled is false to leave the component out; what it installed before is
	// pruned. True when unset.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// Override changes what the component renders. Reserved keys: values (Helm
	// values), images, replicas, patches (as in a kustomization). Every other
	// key is a parameter that the component declares.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Override *apiextensionsv1.JSON `json:"override,omitempty"`
}

// KsctlInstallSpec is the wish for one stack on one cluster.
//
// +kubebuilder:validation:XValidation:rule="self.sourceRef.kind != 'Catalog' || (has(self.stackVersion) && size(self.stackVersion) > 0)",message="a stack of the catalogue needs its stackVersion: so nothing changes when the controller is upgraded"
// +kubebuilder:validation:XValidation:rule="self.sourceRef.kind != 'Catalog' || !has(self.path) || size(self.path) == 0",message="a stack of the catalogue has no path"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterRef) || !has(self.kubeConfig)",message="set at most one of clusterRef and kubeConfig: which cluster to install to"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterSelector) || !(has(self.clusterRef) || has(self.kubeConfig) || has(self.publish) || has(self.takeOver))",message="with clusterSelector there is an install for each cluster: clusterRef, kubeConfig, publish and takeOver go without it"
// +kubebuilder:validation:XValidation:rule="!has(self.valuesFrom) || has(self.clusterRef) || has(self.clusterSelector) || self.valuesFrom.all(v, v.kind != 'Cluster')",message="values of kind Cluster are those of a KsctlCluster: set clusterRef or clusterSelector"
type KsctlInstallSpec struct {
	Schedule `json:",inline"`

	// The cluster that the stack is installed to. It is not changed while something is installed.
	TargetCluster `json:",inline"`

	// ClusterSelector installs to every KsctlCluster of the namespace that it picks: there is
	// an install for each, which goes when the cluster is not picked any more.
	// +optional
	ClusterSelector *ClusterSelector `json:"clusterSelector,omitempty"`

	// SourceRef names the source that holds the stack.
	SourceRef SourceRef `json:"sourceRef"`

	// Path is the folder in the source that holds stack.yaml, or
	// <stack>/stack.yaml. The root of the source when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// Stack is the name of the stack.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Stack string `json:"stack"`

	// StackVersion, when set, must be exactly the version that the stack in the
	// source declares.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	StackVersion string `json:"stackVersion,omitempty"`

	// Parameters are the stack-wide choices that the stack declares.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Parameters *apiextensionsv1.JSON `json:"parameters,omitempty"`

	// Components are the choices for single components. All are optional.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Components []ComponentChoice `json:"components,omitempty"`

	// Strict makes an unknown key in an override an error where no schema says
	// what is known. Otherwise it is a warning.
	// +optional
	Strict bool `json:"strict,omitempty"`

	// ValuesFrom takes values from ConfigMaps and Secrets, which are watched.
	// Precedence: stack defaults < valuesFrom < parameters < component override.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ValuesFrom []ValuesReference `json:"valuesFrom,omitempty"`

	// Charts says how to reach repositories that charts of the stack come from.
	// One that is not listed is asked without credentials.
	// +optional
	// +listType=map
	// +listMapKey=repository
	// +kubebuilder:validation:MaxItems=64
	Charts []ChartRepository `json:"charts,omitempty"`

	// Decryption says how files of the source, and values of valuesFrom, are decrypted that
	// are encrypted with SOPS. Without it they are refused.
	// +optional
	Decryption *Decryption `json:"decryption,omitempty"`

	// ServiceAccountName is the account in the install's namespace whose rights
	// are used for every request to this cluster. The controller's
	// --default-service-account when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// TargetNamespace is where namespaced objects go that name no namespace and
	// whose component names none. The install's namespace when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// DependsOn are objects that must be ready before this install begins. An
	// install that others depend on is removed after them.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	DependsOn []Dependency `json:"dependsOn,omitempty"`

	// TakeOver names an install of this namespace whose objects this one takes over:
	// what it wants of them is handed over when that one no longer wants it, or is
	// deleted. So an install is renamed.
	// +optional
	TakeOver *TakeOver `json:"takeOver,omitempty"`

	// Drift says how changes made by others are treated.
	// +optional
	Drift *Drift `json:"drift,omitempty"`

	// Adopt says which existing objects may be taken over. Unowned when unset.
	// +optional
	Adopt AdoptMode `json:"adopt,omitempty"`

	// Prune removes objects that left the stack. True when unset.
	// +optional
	Prune *bool `json:"prune,omitempty"`

	// Guard bounds what a change of the source may delete.
	// +optional
	Guard *Guard `json:"guard,omitempty"`

	// DeletionPolicy says what becomes of the objects when the install is deleted.
	// Delete when unset.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Publish offers what the stack renders to as an ExternalArtifact of Flux.
	// Nothing is published when unset, and what was is taken back.
	// +optional
	Publish *Publish `json:"publish,omitempty"`

	// Force recreates an object when a change touches an immutable field, unless
	// guard.protectKinds or the annotation ksctl.com/prevent-deletion forbids to delete it.
	// +optional
	Force bool `json:"force,omitempty"`
}

// KsctlInstallStatus is what was seen of one install.
type KsctlInstallStatus struct {
	CommonStatus `json:",inline"`

	// LastAttemptedRevision is the source's revision that was tried last.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// LastAppliedRevision is the source's revision that is applied and was ready; with
	// spec.publish.mode Only the one that was published.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// Artifact is what an install that was made for a cluster took in last: it keeps to that
	// until it may take in another one.
	// +optional
	Artifact *TakenArtifact `json:"artifact,omitempty"`

	// StackVersion is the version of the stack that was tried last.
	// +optional
	StackVersion string `json:"stackVersion,omitempty"`

	// Components in their order.
	// +optional
	// +listType=map
	// +listMapKey=name
	Components []ComponentStatus `json:"components,omitempty"`

	// Inventory is what the install owns.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`

	// Cluster that has what is in the inventory: <namespace>.<name> of a KsctlCluster, or
	// secret:<namespace>.<name> of a Secret with a kubeconfig, with :<key> where a key is named. That which the controller
	// runs in when unset.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// ClusterUID is the uid of that cluster's namespace kube-system, by which it is told from
	// another one that is reached in its place; unset when it may not be read.
	// +optional
	ClusterUID string `json:"clusterUID,omitempty"`

	// Clusters are those that spec.clusterSelector picks, and those that it picked and that are
	// not rid of the stack yet.
	// +optional
	// +listType=map
	// +listMapKey=name
	Clusters []InstalledCluster `json:"clusters,omitempty"`

	// Removals are the KsctlRemoves that the install follows.
	// +optional
	// +listType=map
	// +listMapKey=name
	Removals []InstallRemoval `json:"removals,omitempty"`

	// Warnings of the last render, at most 10.
	// +optional
	Warnings []string `json:"warnings,omitempty"`
}

// KsctlInstall keeps one stack installed.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kin;ksi,categories=all;fluxcd;ksctl
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
// +kubebuilder:printcolumn:name="Stack",type=string,JSONPath=".spec.stack",priority=1
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=".status.stackVersion",priority=1
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=".status.cluster",priority=1
type KsctlInstall struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KsctlInstallSpec `json:"spec,omitempty"`
	// +kubebuilder:default={observedGeneration:-1}
	Status KsctlInstallStatus `json:"status,omitempty"`
}

// KsctlInstallList is a list of KsctlInstalls.
//
// +kubebuilder:object:root=true
type KsctlInstallList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KsctlInstall `json:"items"`
}

// CommonStatus returns the part of the status that every kind has.
func (in *KsctlInstall) CommonStatus() *CommonStatus { return &in.Status.CommonStatus }

// Schedule says when the object is looked at again.
func (in *KsctlInstall) Schedule() *Schedule { return &in.Spec.Schedule }
