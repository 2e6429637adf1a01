package v1alpha1

import (
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// ExportedCredentialsPolicy says whether credentials of clouds leave the cluster.
// +kubebuilder:validation:Enum=Export;Skip
type ExportedCredentialsPolicy string

// Policies for credentials of an export.
const (
	// ExportCredentials exports those of the clouds that clusters were selected in, of all without select.
	ExportCredentials ExportedCredentialsPolicy = "Export"
	// KeepCredentials exports none.
	KeepCredentials ExportedCredentialsPolicy = "Skip"
)

// ExportSecret is a Secret that an export is kept in.
type ExportSecret struct {
	// Name of the Secret, in this namespace. It is made; one that is somebody else's is
	// refused. It has one key for each file.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// CommitAuthor is who commits are by.
type CommitAuthor struct {
	// Name of the author.
	// +kubebuilder:validation:Pattern="^[^<>\\x00-\\x1f]*[^<>\\s\\x00-\\x1f][^<>\\x00-\\x1f]*$"
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`

	// Email of the author.
	// +kubebuilder:validation:Pattern="^[^<>\\s\\x00-\\x1f]+$"
	// +kubebuilder:validation:MaxLength=254
	Email string `json:"email"`
}

// ExportRepository is a branch of a Git repository that an export is committed to.
//
// +kubebuilder:validation:XValidation:rule="!self.url.startsWith('ssh://') || has(self.secretRef)",message="a URL of ssh needs a secretRef with identity and known_hosts"
type ExportRepository struct {
	// URL of the repository, such as https://git.example.com/team/fleet.git or
	// ssh://git@git.example.com/team/fleet.git.
	// +kubebuilder:validation:Pattern="^(https?|ssh)://.+"
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// Branch to commit to. One that does not exist begins with the commit of the repository's
	// default branch, or with none in a repository that is empty. It is never force-pushed.
	// +kubebuilder:validation:Pattern="^[A-Za-z0-9_]([-A-Za-z0-9_./]*[A-Za-z0-9_])?$"
	// +kubebuilder:validation:MaxLength=200
	Branch string `json:"branch"`

	// Path of the folder that files go to. The root of the repository when unset. Other
	// files in it are left alone.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// SecretRef names a Secret of this namespace with what opens the repository, for
	// writing. For HTTPS: username and password, or bearerToken; ca.crt for a certificate
	// authority of your own. For SSH: identity (the private key), password (of the key, if
	// it has one) and known_hosts. A change of the Secret is noticed at once.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// ProxySecretRef names a Secret of this namespace with the proxy to go through:
	// address, and username and password if it asks for them. SSH goes through a SOCKS5
	// proxy only.
	// +optional
	ProxySecretRef *fluxmeta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Author of the commits.
	Author CommitAuthor `json:"author"`

	// Message is the first line of each commit's message. "Export the state of clusters"
	// when unset.
	// +optional
	// +kubebuilder:validation:Pattern="^[^\\x00-\\x1f]*$"
	// +kubebuilder:validation:MaxLength=200
	Message string `json:"message,omitempty"`
}

// ExportTarget says where an export goes.
//
// +kubebuilder:validation:XValidation:rule="has(self.secret) != has(self.git)",message="set exactly one of secret and git: where the states go"
type ExportTarget struct {
	// Secret of this namespace.
	// +optional
	Secret *ExportSecret `json:"secret,omitempty"`

	// Git is a branch of a Git repository.
	// +optional
	Git *ExportRepository `json:"git,omitempty"`
}

// ExportStateSpec says which states to export, to whom, and where they go.
//
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy == 'Keep' || !has(self.to.git)",message="what was committed stays: deletionPolicy Delete is for a Secret"
type ExportStateSpec struct {
	appsv1.Schedule `json:",inline"`

	// From is ksctl's store, which is read.
	// +optional
	From *StateStore `json:"from,omitempty"`

	// Select restricts the export to some clusters. All when unset.
	// +optional
	Select *StateSelector `json:"select,omitempty"`

	// Credentials says whether credentials of clouds are exported, too. Skip when unset: they
	// open more than the clusters.
	// +optional
	Credentials ExportedCredentialsPolicy `json:"credentials,omitempty"`

	// Recipients are public keys of age: whoever has the private key of one of them can read
	// what is exported, and nobody else. Change them and everything is encrypted anew.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:Pattern="^age1([02-9ac-hj-np-z]{58}|pq1[02-9ac-hj-np-z]{58,})$"
	// +kubebuilder:validation:items:MaxLength=2048
	// +listType=set
	Recipients []string `json:"recipients"`

	// To is where the states go.
	To ExportTarget `json:"to"`

	// Prune removes files of what the store has no more, or what is not selected any more.
	// An export is a backup: they stay when unset.
	// +optional
	Prune bool `json:"prune,omitempty"`

	// DeletionPolicy says what becomes of a Secret that was written when this object is
	// deleted. Keep when unset.
	// +optional
	DeletionPolicy StateDeletionPolicy `json:"deletionPolicy,omitempty"`

	// ServiceAccountName is the account in this namespace whose rights are used to read
	// the store and the Secrets, and to write. The controller's --default-service-account
	// when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// ExportAction is what becomes of a file of an export.
type ExportAction string

// Export actions.
const (
	// ExportInSync is a file that has what the store has.
	ExportInSync ExportAction = "InSync"
	// ExportCreate and ExportUpdate are files that are to be written.
	ExportCreate ExportAction = "Create"
	ExportUpdate ExportAction = "Update"
	// ExportRestore is a file that somebody has changed or removed since it was written.
	ExportRestore ExportAction = "Restore"
	// ExportRemove is a file that is to go.
	ExportRemove ExportAction = "Remove"
	// ExportLeft is a file of what the store has no more; it stays.
	ExportLeft ExportAction = "LeftStore"
	// ExportTaken is a file that is somebody else's.
	ExportTaken ExportAction = "FileTaken"
	// ExportByAnother is a file that an older ExportState writes.
	ExportByAnother ExportAction = "ExportedByAnother"
	// ExportInvalid is an entry of the store that can't be exported.
	ExportInvalid ExportAction = "Invalid"
)

// ExportedFile is how one file of an export stands.
type ExportedFile struct {
	// Key of the cluster in ksctl's store, <cloud>.<type>.<name>.<region>, or the cloud that
	// credentials are of.
	Key string `json:"key"`

	// File that it is in, below the path of the repository, or the key of the Secret.
	File string `json:"file"`

	// Action is what is done, or why nothing is.
	Action ExportAction `json:"action"`

	// Ready is true when the file has what is to be in it.
	Ready bool `json:"ready"`

	// Message says more, for a person.
	// +optional
	Message string `json:"message,omitempty"`

	// Written identifies what was written last, and the file that it was written in, by
	// keyed hashes.
	// +optional
	Written string `json:"written,omitempty"`

	// Writing identifies what is about to be written, until that is known to be done.
	// +optional
	Writing string `json:"writing,omitempty"`
}

// ExportStateStatus is what was seen of one export.
type ExportStateStatus struct {
	appsv1.CommonStatus `json:",inline"`

	// LastExportedRevision is the commit that was made last, as <branch>@sha1:<commit>, or
	// the Secret as it was written last, as <name>@<resourceVersion>.
	// +optional
	LastExportedRevision string `json:"lastExportedRevision,omitempty"`

	// Digest identifies everything that is exported, by a keyed hash.
	// +optional
	Digest string `json:"digest,omitempty"`

	// Target that was written to.
	// +optional
	Target string `json:"target,omitempty"`

	// Secret that was written, if the target is one.
	// +optional
	Secret string `json:"secret,omitempty"`

	// Clusters that are exported, and those that were before.
	// +optional
	// +listType=map
	// +listMapKey=key
	Clusters []ExportedFile `json:"clusters,omitempty"`

	// Credentials of clouds, likewise.
	// +optional
	// +listType=map
	// +listMapKey=key
	Credentials []ExportedFile `json:"credentials,omitempty"`
}

// ExportState keeps the states of clusters that ksctl has in its store, encrypted, in a Secret
// or on a branch of a Git repository: in the form that an ImportState takes.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kes,categories=all;fluxcd;ksctl
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
type ExportState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExportStateSpec `json:"spec,omitempty"`
	// +kubebuilder:default={observedGeneration:-1}
	Status ExportStateStatus `json:"status,omitempty"`
}

// ExportStateList is a list of ExportStates.
//
// +kubebuilder:object:root=true
type ExportStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExportState `json:"items"`
}

// CommonStatus returns the part of the status that every kind has.
func (in *ExportState) CommonStatus() *appsv1.CommonStatus { return &in.Status.CommonStatus }

// Schedule says when the object is looked at again.
func (in *ExportState) Schedule() *appsv1.Schedule { return &in.Spec.Schedule }
