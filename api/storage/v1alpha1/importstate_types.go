package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// StateSelector selects clusters by the properties that identify a cluster in ksctl. Unset fields
// match every cluster.
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

	// Region of the cloud. It is LOCAL for the cloud local.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`
}

// CredentialsPolicy specifies how the cloud credentials in an export are handled.
// +kubebuilder:validation:Enum=Import;Skip
type CredentialsPolicy string

// Credentials policies.
const (
	ImportCredentials CredentialsPolicy = "Import"
	SkipCredentials   CredentialsPolicy = "Skip"
)

// ConflictPolicy specifies what happens if the store already has a different state of a cluster, or
// different credentials of a cloud.
// +kubebuilder:validation:Enum=Refuse;Overwrite
type ConflictPolicy string

// Conflict policies.
const (
	// RefuseConflict keeps the existing entry, and reports the conflict.
	RefuseConflict ConflictPolicy = "Refuse"
	// OverwriteConflict overwrites the existing entry, once for each change of the source.
	OverwriteConflict ConflictPolicy = "Overwrite"
)

// StateDeletionPolicy specifies what happens to the written data when the object is deleted.
// +kubebuilder:validation:Enum=Keep;Delete
type StateDeletionPolicy string

// State deletion policies.
const (
	// KeepState keeps everything in the store.
	KeepState StateDeletionPolicy = "Keep"
	// DeleteState removes the written entries from the store, except entries that another client
	// has changed since.
	DeleteState StateDeletionPolicy = "Delete"
)

// StateStore is ksctl's own store in the cluster.
type StateStore struct {
	// Namespace in which ksctl stores its states. Defaults to ksctl.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// ImportStore is the destination of the states: ksctl's own store, or an agent with a store.
//
// +kubebuilder:validation:XValidation:rule="!has(self.agent) || !has(self.__namespace__)",message="namespace is not allowed with agent"
type ImportStore struct {
	StateStore `json:",inline"`

	// Agent is the endpoint of ksctl's agent, which imports an export into the store of the cluster
	// that it runs in. Existing entries of the same clusters are overwritten, so conflict must be
	// Overwrite. The agent cannot report the content of its store, so nothing is compared,
	// published or removed: an entry is sent if it differs from the one that was last sent.
	// +optional
	Agent *appsv1.AgentEndpoint `json:"agent,omitempty"`
}

// ArgoCDPublication specifies the Argo CD in which clusters are registered.
type ArgoCDPublication struct {
	// Namespace of Argo CD. It must be listed in the controller's --argocd-namespaces.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// ClusterPublication specifies how imported clusters are published.
//
// +kubebuilder:validation:XValidation:rule="!has(self.argocd) || self.kubeConfig",message="argocd requires kubeConfig: true"
type ClusterPublication struct {
	// KubeConfig creates a KsctlCluster in this namespace for each imported cluster that has none.
	// It is created only once: after that you own its content. The KsctlCluster keeps the
	// kubeconfig of the cluster in a Secret. Its name is the name of the cluster, or
	// <cloud>-<type>-<name>-<region> if that name is already used.
	KubeConfig bool `json:"kubeConfig"`

	// ArgoCD also registers the clusters in Argo CD.
	// +optional
	ArgoCD *ArgoCDPublication `json:"argocd,omitempty"`
}

// ImportStateSpec specifies the states to import, and their destination.
//
// +kubebuilder:validation:XValidation:rule="has(self.sourceRef) != has(self.rawExportedData)",message="set exactly one of sourceRef and rawExportedData"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceRef) || self.sourceRef.kind != 'Catalog'",message="sourceRef.kind Catalog has no states: use another source"
// +kubebuilder:validation:XValidation:rule="!has(self.rawExportedData) || !has(self.path)",message="path is not allowed with rawExportedData"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.store.agent) || !has(self.publish) || !self.publish.kubeConfig",message="publish.kubeConfig is not allowed with store.agent, which cannot report its states: create a KsctlCluster with kubeConfigRef"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.store.agent) || !has(self.deletionPolicy) || self.deletionPolicy != 'Delete'",message="deletionPolicy must be Keep with store.agent, which cannot delete states"
type ImportStateSpec struct {
	appsv1.Schedule `json:",inline"`

	// SourceRef names the source that contains the state.
	// +optional
	SourceRef *appsv1.SourceRef `json:"sourceRef,omitempty"`

	// Path in the source of an export, of the state of one cluster, or of a folder in which every
	// file with a name that ends in .json is an export or the state of one cluster. Defaults to the
	// root of the source.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// RawExportedData is the content of an export, instead of a source. If it is not encrypted with
	// SOPS, everyone who may read this object can read its secrets, and it is refused without
	// allowPlaintext.
	// +optional
	RawExportedData []byte `json:"rawExportedData,omitempty"`

	// Handled was written by the first ImportState of ksctl. It is ignored: an import with handled:
	// true is carried out like any other import.
	//
	// Deprecated: the status reports what was done.
	// +optional
	Handled bool `json:"handled,omitempty"`

	// Success was written by the first ImportState of ksctl. It is ignored.
	//
	// Deprecated: the condition Ready reports the result.
	// +optional
	Success bool `json:"success,omitempty"`

	// ReasonOfFailure was written by the first ImportState of ksctl. It is ignored.
	//
	// Deprecated: the condition Ready reports the reason of a failure.
	// +optional
	ReasonOfFailure string `json:"reasonOfFailure,omitempty"`

	// Decryption configures the decryption of SOPS-encrypted files.
	// +optional
	Decryption *appsv1.Decryption `json:"decryption,omitempty"`

	// AllowPlaintext accepts files with unencrypted secrets. Otherwise they are refused.
	// +optional
	AllowPlaintext bool `json:"allowPlaintext,omitempty"`

	// Select restricts the import to some clusters. Defaults to all clusters.
	// +optional
	Select *StateSelector `json:"select,omitempty"`

	// Credentials specifies whether cloud credentials are imported. Defaults to Import, which
	// imports the credentials of the clouds of the selected clusters, or all credentials if the
	// file contains no cluster.
	// +optional
	Credentials CredentialsPolicy `json:"credentials,omitempty"`

	// Store is ksctl's store, which the states are written to.
	// +optional
	Store *ImportStore `json:"store,omitempty"`

	// Conflict specifies what happens if the store has a different state of a cluster. Defaults to
	// Refuse. Changes and removals by ksctl after the import are not conflicts: they are kept until
	// the source changes. An agent's store may always have a different state: with Refuse, nothing
	// is sent to the agent.
	// +optional
	Conflict ConflictPolicy `json:"conflict,omitempty"`

	// DryRun only writes the status, which reports what would be done. If data was written to
	// another store or agent before, only the message of the condition Ready reports it.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`

	// Publish specifies how the imported clusters are published.
	// +optional
	Publish *ClusterPublication `json:"publish,omitempty"`

	// DeletionPolicy specifies what happens to the written entries and the created KsctlClusters
	// when this object is deleted. Defaults to Keep.
	// +optional
	DeletionPolicy StateDeletionPolicy `json:"deletionPolicy,omitempty"`

	// ServiceAccountName is the service account in this namespace whose permissions are used to
	// read and write the store. Defaults to the controller's --default-service-account.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// ImportStateStatus is the observed state of an import.
type ImportStateStatus struct {
	appsv1.CommonStatus `json:",inline"`

	// LastAttemptedRevision is the last revision of the source that was attempted.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// LastAppliedRevision is the last revision of the source that was imported.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// Clusters that are selected in the source, or that were written before.
	// +optional
	// +listType=map
	// +listMapKey=key
	Clusters []ImportedCluster `json:"clusters,omitempty"`

	// Credentials of clouds that are selected in the source, or that were written before.
	// +optional
	// +listType=map
	// +listMapKey=cloud
	Credentials []ImportedCredentials `json:"credentials,omitempty"`

	// Store is the namespace of the store that was written to.
	// +optional
	Store string `json:"store,omitempty"`

	// Agent is the address of the agent that was sent to.
	// +optional
	Agent string `json:"agent,omitempty"`
}

// ImportState imports cluster states, in the format of ksctl's exports, into ksctl's store, and
// applies later changes of its source.
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

// Schedule returns the schedule of the spec.
func (in *ImportState) Schedule() *appsv1.Schedule { return &in.Spec.Schedule }
