package v1alpha1

import (
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// ExportedCredentialsPolicy specifies whether cloud credentials are exported.
// +kubebuilder:validation:Enum=Export;Skip
type ExportedCredentialsPolicy string

// Policies for exported credentials.
const (
	// ExportCredentials exports the credentials of the clouds of selected clusters. Without a
	// selector it exports the credentials of all clouds.
	ExportCredentials ExportedCredentialsPolicy = "Export"
	// KeepCredentials exports no credentials.
	KeepCredentials ExportedCredentialsPolicy = "Skip"
)

// ExportSecret is the Secret that an export is written to.
type ExportSecret struct {
	// Name of the Secret in this namespace. The Secret is created. An existing Secret of another
	// owner is refused. The Secret has one key for each file.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// CommitAuthor is the author of commits.
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

// ExportRepository is the branch of a Git repository that an export is committed to.
//
// +kubebuilder:validation:XValidation:rule="!self.url.startsWith('ssh://') || has(self.secretRef)",message="ssh:// URLs require a secretRef with identity and known_hosts"
type ExportRepository struct {
	// URL of the repository, such as https://git.example.com/team/fleet.git or
	// ssh://git@git.example.com/team/fleet.git.
	// +kubebuilder:validation:Pattern="^(https?|ssh)://.+"
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// Branch to commit to. A missing branch starts at the head of the repository's default branch,
	// or without a parent if the repository is empty. The branch is never force-pushed.
	// +kubebuilder:validation:Pattern="^[A-Za-z0-9_]([-A-Za-z0-9_./]*[A-Za-z0-9_])?$"
	// +kubebuilder:validation:MaxLength=200
	Branch string `json:"branch"`

	// Path of the folder for the files. Defaults to the root of the repository. Other files in the
	// folder are not changed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// SecretRef names a Secret in this namespace with credentials that may write to the repository.
	// For HTTPS: username and password, or bearerToken; ca.crt for a private certificate authority.
	// For SSH: identity (the private key), password (of the private key, if it has one) and
	// known_hosts. Changes to the Secret are detected immediately.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// ProxySecretRef names a Secret in this namespace with the proxy to use: address, and username
	// and password if the proxy requires them. SSH only supports SOCKS5 proxies.
	// +optional
	ProxySecretRef *fluxmeta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Author of the commits.
	Author CommitAuthor `json:"author"`

	// Message is the first line of the commit messages. Defaults to "Export the state of clusters".
	// +optional
	// +kubebuilder:validation:Pattern="^[^\\x00-\\x1f]*$"
	// +kubebuilder:validation:MaxLength=200
	Message string `json:"message,omitempty"`
}

// ExportTarget specifies where an export is written.
//
// +kubebuilder:validation:XValidation:rule="has(self.secret) != has(self.git)",message="set exactly one of secret and git"
type ExportTarget struct {
	// Secret to write to, in this namespace.
	// +optional
	Secret *ExportSecret `json:"secret,omitempty"`

	// Git is the branch of a Git repository to commit to.
	// +optional
	Git *ExportRepository `json:"git,omitempty"`
}

// ExportStateSpec specifies the states to export, the recipients who can decrypt them, and the
// target.
//
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy == 'Keep' || !has(self.to.git)",message="deletionPolicy Delete is only allowed with to.secret: commits are never removed"
type ExportStateSpec struct {
	appsv1.Schedule `json:",inline"`

	// From is ksctl's store, which the states are read from.
	// +optional
	From *StateStore `json:"from,omitempty"`

	// Select restricts the export to some clusters. Defaults to all clusters.
	// +optional
	Select *StateSelector `json:"select,omitempty"`

	// Credentials specifies whether cloud credentials are also exported. Defaults to Skip, because
	// credentials give access to more than the clusters.
	// +optional
	Credentials ExportedCredentialsPolicy `json:"credentials,omitempty"`

	// Recipients are public age keys. Only the owners of the corresponding private keys can decrypt
	// the export: one private key is sufficient. If the recipients change, everything is encrypted
	// again.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:Pattern="^age1([02-9ac-hj-np-z]{58}|pq1[02-9ac-hj-np-z]{58,})$"
	// +kubebuilder:validation:items:MaxLength=2048
	// +listType=set
	Recipients []string `json:"recipients"`

	// To is the target of the export.
	To ExportTarget `json:"to"`

	// Prune removes the files of entries that are no longer in the store, or no longer selected. By
	// default the files are kept, because an export is a backup.
	// +optional
	Prune bool `json:"prune,omitempty"`

	// DeletionPolicy specifies what happens to a Secret that was written when this object is
	// deleted. Defaults to Keep.
	// +optional
	DeletionPolicy StateDeletionPolicy `json:"deletionPolicy,omitempty"`

	// ServiceAccountName is the service account in this namespace whose permissions are used to
	// read the store and the Secrets, and to write the export. Defaults to the controller's
	// --default-service-account.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// ExportAction is the action for a file of an export, or the reason why there is none.
type ExportAction string

// Export actions.
const (
	// ExportInSync: the file is up to date with the store.
	ExportInSync ExportAction = "InSync"
	// ExportCreate and ExportUpdate: the file will be written.
	ExportCreate ExportAction = "Create"
	ExportUpdate ExportAction = "Update"
	// ExportRestore: another client has changed or removed the file since it was written.
	ExportRestore ExportAction = "Restore"
	// ExportRemove: the file will be removed.
	ExportRemove ExportAction = "Remove"
	// ExportLeft: the entry is no longer in the store, and the file is kept.
	ExportLeft ExportAction = "LeftStore"
	// ExportTaken: another client has created the file.
	ExportTaken ExportAction = "FileTaken"
	// ExportByAnother: an older ExportState writes the file.
	ExportByAnother ExportAction = "ExportedByAnother"
	// ExportInvalid: the entry of the store cannot be exported.
	ExportInvalid ExportAction = "Invalid"
)

// ExportedFile is the state of one file of an export.
type ExportedFile struct {
	// Key of the cluster in ksctl's store, as <cloud>.<type>.<name>.<region>, or the name of the
	// cloud for credentials.
	Key string `json:"key"`

	// File is the path of the file relative to the path in the repository, or the key of the
	// Secret.
	File string `json:"file"`

	// Action is the action for the file, or the reason why there is none.
	Action ExportAction `json:"action"`

	// Ready is true if the file has the desired content.
	Ready bool `json:"ready"`

	// Message is a human-readable explanation of the action.
	// +optional
	Message string `json:"message,omitempty"`

	// Written identifies the content that was last written and the file that it was written to, by
	// keyed hashes.
	// +optional
	Written string `json:"written,omitempty"`

	// Writing identifies content whose write has started and is not confirmed yet.
	// +optional
	Writing string `json:"writing,omitempty"`
}

// ExportStateStatus is the observed state of an export.
type ExportStateStatus struct {
	appsv1.CommonStatus `json:",inline"`

	// LastExportedRevision is the last commit that was created, as <branch>@sha1:<commit>, or the
	// Secret as it was last written, as <name>@<resourceVersion>.
	// +optional
	LastExportedRevision string `json:"lastExportedRevision,omitempty"`

	// Digest is a keyed hash of everything that is exported.
	// +optional
	Digest string `json:"digest,omitempty"`

	// Target that was last written to.
	// +optional
	Target string `json:"target,omitempty"`

	// Secret is the name of the Secret that was written, if the target is a Secret.
	// +optional
	Secret string `json:"secret,omitempty"`

	// Clusters that are exported or were exported before.
	// +optional
	// +listType=map
	// +listMapKey=key
	Clusters []ExportedFile `json:"clusters,omitempty"`

	// Credentials of clouds that are exported or were exported before.
	// +optional
	// +listType=map
	// +listMapKey=key
	Credentials []ExportedFile `json:"credentials,omitempty"`
}

// ExportState exports the cluster states in ksctl's store, encrypted, to a Secret or to a branch of
// a Git repository, and keeps the export up to date. An ImportState can import the export.
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

// Schedule returns the schedule of the spec.
func (in *ExportState) Schedule() *appsv1.Schedule { return &in.Spec.Schedule }
