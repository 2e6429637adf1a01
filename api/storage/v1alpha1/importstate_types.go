package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// StateSelector selects clusters by what ksctl tells them apart by. What is unset
// fits every cluster.
type StateSelector struct {
	// Cloud is aws, azure, civo or local.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Cloud string `json:"cloud,omitempty"`

	// ClusterType is ha or selfmanaged, or managed.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	ClusterType string `json:"clusterType,omitempty"`

	// ClusterName is the name of the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=50
	ClusterName string `json:"clusterName,omitempty"`

	// Region of the cloud, LOCAL for the cloud local.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`
}

// CredentialsPolicy says what becomes of the clouds' credentials in an export.
// +kubebuilder:validation:Enum=Import;Skip
type CredentialsPolicy string

// Credentials policies.
const (
	ImportCredentials CredentialsPolicy = "Import"
	SkipCredentials   CredentialsPolicy = "Skip"
)

// ConflictPolicy says what happens to another state of a cluster, or to other credentials
// of a cloud, that the store holds already.
// +kubebuilder:validation:Enum=Refuse;Overwrite
type ConflictPolicy string

// Conflict policies.
const (
	// RefuseConflict leaves what is there, and says so.
	RefuseConflict ConflictPolicy = "Refuse"
	// OverwriteConflict replaces what is there, once for each change of the source.
	OverwriteConflict ConflictPolicy = "Overwrite"
)

// StateDeletionPolicy says what becomes of what was written when the object is deleted.
// +kubebuilder:validation:Enum=Keep;Delete
type StateDeletionPolicy string

// State deletion policies.
const (
	// KeepState leaves everything in the store.
	KeepState StateDeletionPolicy = "Keep"
	// DeleteState takes out of the store what was written, unless somebody has changed it since.
	DeleteState StateDeletionPolicy = "Delete"
)

// StateStore is ksctl's own store in the cluster.
type StateStore struct {
	// Namespace that ksctl looks for its states in. ksctl when unset.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// ImportStore is where states are brought: ksctl's own store, or an agent that has one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.agent) || !has(self.__namespace__)",message="an agent knows its store: leave namespace out"
type ImportStore struct {
	StateStore `json:",inline"`

	// Agent is ksctl's agent, that brings an export into the store of the cluster that it
	// runs in: what was in that of the same clusters goes, so conflict: Overwrite has to be
	// set. It can't be asked what the store has, so nothing is compared, published or taken
	// back: what is another than was sent last is sent.
	// +optional
	Agent *appsv1.AgentEndpoint `json:"agent,omitempty"`
}

// ArgoCDPublication says which Argo CD is told of clusters.
type ArgoCDPublication struct {
	// Namespace of Argo CD. The controller's --argocd-namespaces must list it.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// ClusterPublication says how imported clusters are made known.
//
// +kubebuilder:validation:XValidation:rule="!has(self.argocd) || self.kubeConfig",message="argocd needs kubeConfig: true"
type ClusterPublication struct {
	// KubeConfig makes a KsctlCluster in this namespace for each imported cluster that has
	// none, once: what is in it is yours then. It keeps the cluster's kubeconfig in a
	// Secret. Its name is the cluster's, or <cloud>-<type>-<name>-<region> where that is
	// taken.
	KubeConfig bool `json:"kubeConfig"`

	// ArgoCD has Argo CD know the clusters, too.
	// +optional
	ArgoCD *ArgoCDPublication `json:"argocd,omitempty"`
}

// ImportStateSpec says which states to import, and where they go.
//
// +kubebuilder:validation:XValidation:rule="has(self.sourceRef) != has(self.rawExportedData)",message="set exactly one of sourceRef and rawExportedData: where the state is"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceRef) || self.sourceRef.kind != 'Catalog'",message="the catalogue has stacks, and no states: name a source"
// +kubebuilder:validation:XValidation:rule="!has(self.rawExportedData) || !has(self.path)",message="rawExportedData is one file: it has no path"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.store.agent) || !has(self.publish) || !self.publish.kubeConfig",message="an agent can't be asked for what its store has: leave publish out, and give a KsctlCluster a kubeConfigRef"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.store.agent) || !has(self.deletionPolicy) || self.deletionPolicy != 'Delete'",message="an agent takes nothing out of its store: leave deletionPolicy at Keep"
type ImportStateSpec struct {
	appsv1.Schedule `json:",inline"`

	// SourceRef names the source that holds the state.
	// +optional
	SourceRef *appsv1.SourceRef `json:"sourceRef,omitempty"`

	// Path in the source of an export, of the state of one cluster, or of a folder, in
	// which every file whose name ends in .json is one of these. The root of the source when
	// unset.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// RawExportedData is an export itself instead of one in a source. Unless it is
	// encrypted with SOPS, its secrets stand in this object for everybody who may read it,
	// and it is refused without allowPlaintext.
	// +optional
	RawExportedData []byte `json:"rawExportedData,omitempty"`

	// Handled is what the first ImportState of ksctl noted here. It is ignored: an import with
	// handled: true is carried out as any other.
	//
	// Deprecated: status says what was done.
	// +optional
	Handled bool `json:"handled,omitempty"`

	// Success is what the first ImportState of ksctl noted here, and is ignored.
	//
	// Deprecated: the condition Ready says how it ended.
	// +optional
	Success bool `json:"success,omitempty"`

	// ReasonOfFailure is what the first ImportState of ksctl noted here, and is ignored.
	//
	// Deprecated: the condition Ready says why it failed.
	// +optional
	ReasonOfFailure string `json:"reasonOfFailure,omitempty"`

	// Decryption says how files are decrypted that are encrypted with SOPS.
	// +optional
	Decryption *appsv1.Decryption `json:"decryption,omitempty"`

	// AllowPlaintext takes files in which secrets are readable. They are refused
	// otherwise.
	// +optional
	AllowPlaintext bool `json:"allowPlaintext,omitempty"`

	// Select restricts the import to some clusters. All when unset.
	// +optional
	Select *StateSelector `json:"select,omitempty"`

	// Credentials says whether credentials of clouds are imported. Import when unset: those
	// of the clouds that clusters were selected in, and all of them when the file has no
	// cluster.
	// +optional
	Credentials CredentialsPolicy `json:"credentials,omitempty"`

	// Store is ksctl's store, which is written to.
	// +optional
	Store *ImportStore `json:"store,omitempty"`

	// Conflict says what happens when the store holds another state of a cluster. Refuse
	// when unset. What ksctl changes or removes after the import is no conflict: it is left
	// alone until the source changes. An agent's store may always hold another one: with
	// Refuse, nothing is sent to it.
	// +optional
	Conflict ConflictPolicy `json:"conflict,omitempty"`

	// DryRun writes nothing but status, which says what would be done: where another store or
	// agent was brought something before, in the message alone.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// Publish says how the imported clusters are made known.
	// +optional
	Publish *ClusterPublication `json:"publish,omitempty"`

	// DeletionPolicy says what becomes of what was written, and of the KsctlClusters that
	// were made, when this object is deleted.
	// Keep when unset.
	// +optional
	DeletionPolicy StateDeletionPolicy `json:"deletionPolicy,omitempty"`

	// ServiceAccountName is the account in this namespace whose rights are used to read
	// and write the store. The controller's --default-service-account when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// ImportStateStatus is what was seen of one import.
type ImportStateStatus struct {
	appsv1.CommonStatus `json:",inline"`

	// LastAttemptedRevision is the source's revision that was tried last.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// LastAppliedRevision is the source's revision that is imported.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// Clusters that were found and selected, and those that were written before.
	// +optional
	// +listType=map
	// +listMapKey=key
	Clusters []ImportedCluster `json:"clusters,omitempty"`

	// Credentials of clouds, likewise.
	// +optional
	// +listType=map
	// +listMapKey=cloud
	Credentials []ImportedCredentials `json:"credentials,omitempty"`

	// Store that was written to: its namespace.
	// +optional
	Store string `json:"store,omitempty"`

	// Agent that was sent to: its address.
	// +optional
	Agent string `json:"agent,omitempty"`
}

// ImportState keeps states of clusters that ksctl exported in ksctl's store.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kis,categories=all;fluxcd;ksctl
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
type ImportState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ImportStateSpec `json:"spec,omitempty"`
	// +kubebuilder:default={observedGeneration:-1}
	Status ImportStateStatus `json:"status,omitempty"`
}

// ImportStateList is a list of ImportStates.
//
// +kubebuilder:object:root=true
type ImportStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ImportState `json:"items"`
}

// CommonStatus returns the part of the status that every kind has.
func (in *ImportState) CommonStatus() *appsv1.CommonStatus { return &in.Status.CommonStatus }

// Schedule says when the object is looked at again.
func (in *ImportState) Schedule() *appsv1.Schedule { return &in.Spec.Schedule }
