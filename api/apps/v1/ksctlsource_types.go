package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
)

// GitRef selects a commit. At most one field may be set. Defaults to the branch main.
//
// +kubebuilder:validation:XValidation:rule="[has(self.branch), has(self.tag), has(self.semver), has(self.commit)].filter(x, x).size() <= 1",message="set at most one of branch, tag, semver and commit"
type GitRef struct {
	// Branch selects the latest commit of a branch.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Branch string `json:"branch,omitempty"`

	// Tag selects the commit of a tag. If the tag is moved, its new commit is used.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Tag string `json:"tag,omitempty"`

	// SemVer is a range, such as ">=1.2.0 <2.0.0" or "1.x". It selects the tag with the highest
	// version in the range. Tags are versions with or without a leading v. Prereleases only match a
	// range that names one, as in ">=1.2.0-0".
	// +optional
	// +kubebuilder:validation:MaxLength=255
	SemVer string `json:"semver,omitempty"`

	// Commit is a full SHA-1: 40 hexadecimal digits. Repositories with SHA-256 objects are not
	// supported.
	// +optional
	// +kubebuilder:validation:Pattern="^[0-9a-f]{40}$"
	Commit string `json:"commit,omitempty"`
}

// GitVerificationMode specifies the signatures to verify.
type GitVerificationMode string

// Modes of GitVerification.
const (
	// VerifyHEAD verifies the signature of the commit.
	VerifyHEAD GitVerificationMode = "HEAD"
	// VerifyTag verifies the signature of the tag.
	VerifyTag GitVerificationMode = "Tag"
	// VerifyTagAndHEAD verifies both.
	VerifyTagAndHEAD GitVerificationMode = "TagAndHEAD"
)

// GitVerification specifies the signatures that a commit or tag requires.
type GitVerification struct {
	// Mode specifies what must be signed: HEAD (the commit), Tag or TagAndHEAD. Defaults to HEAD.
	// +optional
	// +kubebuilder:validation:Enum=HEAD;Tag;TagAndHEAD
	Mode GitVerificationMode `json:"mode,omitempty"`

	// SecretRef names a Secret in this namespace with the trusted public keys, in entries with any
	// name: armored OpenPGP keys, or lines with SSH public keys as in authorized_keys or
	// allowed_signers.
	SecretRef fluxmeta.LocalObjectReference `json:"secretRef"`
}

// GitSource is a Git repository that is served over HTTPS, HTTP or SSH.
//
// +kubebuilder:validation:XValidation:rule="!self.url.startsWith('ssh://') || has(self.secretRef)",message="ssh:// URLs require a secretRef with identity and known_hosts"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !has(self.verify.mode) || self.verify.mode == 'HEAD' || (has(self.ref) && (has(self.ref.tag) || has(self.ref.semver)))",message="verify.mode Tag and TagAndHEAD require ref.tag or ref.semver"
type GitSource struct {
	// URL of the repository, such as https://git.example.com/team/fleet.git or
	// ssh://git@git.example.com/team/fleet.git.
	// +kubebuilder:validation:Pattern="^(https?|ssh)://.+"
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// Ref selects the commit.
	// +optional
	Ref *GitRef `json:"ref,omitempty"`

	// SecretRef names a Secret in this namespace with the credentials of the repository. For HTTPS:
	// username and password, or bearerToken; ca.crt for a private certificate authority. For SSH:
	// identity (the private key), password (of the private key, if it has one) and known_hosts.
	// Changes to the Secret are detected immediately.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// ProxySecretRef names a Secret in this namespace with the proxy to use: address, and username
	// and password if the proxy requires them. SSH only supports SOCKS5 proxies.
	// +optional
	ProxySecretRef *fluxmeta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// RecurseSubmodules also fetches submodules, recursively. Their files count toward the same
	// limits. Username, password and token are only sent to the server of the URL.
	// +optional
	RecurseSubmodules bool `json:"recurseSubmodules,omitempty"`

	// Verify refuses commits without a signature of a trusted signer.
	// +optional
	Verify *GitVerification `json:"verify,omitempty"`
}

// WebhookType is the sender of webhook requests. It determines how they are authenticated.
type WebhookType string

// Types of SourceWebhook.
const (
	// GitHubWebhook signs requests in X-Hub-Signature-256.
	GitHubWebhook WebhookType = "github"
	// GitLabWebhook sends the token in X-Gitlab-Token.
	GitLabWebhook WebhookType = "gitlab"
	// GiteaWebhook signs requests in X-Gitea-Signature. Forgejo does the same.
	GiteaWebhook WebhookType = "gitea"
	// GenericWebhook sends the token in Authorization, as "Bearer <token>".
	GenericWebhook WebhookType = "generic"
	// GenericHMACWebhook signs requests in X-Signature, as "sha256=<hex>".
	GenericHMACWebhook WebhookType = "generic-hmac"
)

// SourceWebhook is a webhook that triggers an immediate fetch of the source.
//
// +kubebuilder:validation:XValidation:rule="size(self.secretRef.name) > 0",message="secretRef.name is required"
type SourceWebhook struct {
	// Type is the sender of the requests: github, gitlab, gitea (also for Forgejo), or any other
	// sender that sends the token (generic) or signs requests with it (generic-hmac). Requests
	// without valid authentication are rejected.
	// +kubebuilder:validation:Enum=github;gitlab;gitea;generic;generic-hmac
	Type WebhookType `json:"type"`

	// SecretRef names a Secret in this namespace with the token that the sender uses, in the key
	// token. The token must have at least 16 bytes. Changes to the Secret are detected immediately,
	// and also change the path.
	SecretRef fluxmeta.LocalObjectReference `json:"secretRef"`
}

// CommitStatusType is the API that commit statuses are written with.
type CommitStatusType string

// Types of SourceCommitStatus.
const (
	// GitHubStatus is the API of github.com and GitHub Enterprise.
	GitHubStatus CommitStatusType = "github"
	// GitLabStatus is the API of gitlab.com and self-managed GitLab.
	GitLabStatus CommitStatusType = "gitlab"
	// GiteaStatus is the API of Gitea and Forgejo.
	GiteaStatus CommitStatusType = "gitea"
)

// SourceCommitStatus reports the state of the source's installs as statuses of the commits that
// they apply: pending, success or failure, one status for each install.
//
// +kubebuilder:validation:XValidation:rule="size(self.secretRef.name) > 0",message="secretRef.name is required"
type SourceCommitStatus struct {
	// Type is the API of the server: github, gitlab or gitea (also for Forgejo).
	// +kubebuilder:validation:Enum=github;gitlab;gitea
	Type CommitStatusType `json:"type"`

	// SecretRef names a Secret in this namespace with a token that may write commit statuses, in
	// the key token. Its key ca.crt is for a private certificate authority, if it differs from that
	// of git.secretRef. Changes to the Secret are detected immediately.
	SecretRef fluxmeta.LocalObjectReference `json:"secretRef"`

	// Address is the URL of the repository, such as https://git.example.com/team/fleet, if it
	// differs from git.url: for a repository that is fetched from a mirror, or over SSH from a host
	// with another name. The token is sent to the host of this address, or to the host of git.url
	// if it is unset. For github.com, it is sent to api.github.com.
	// +optional
	// +kubebuilder:validation:Pattern="^https?://.+"
	// +kubebuilder:validation:MaxLength=2048
	Address string `json:"address,omitempty"`

	// Cluster is the name of this cluster in the names of statuses, which are
	// ksctlinstall/<namespace>/<name>/<cluster>. Clusters that use the same repository need
	// different names. Defaults to the first part of the UID of the source, which changes if the
	// cluster is recreated.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster,omitempty"`
}

// KsctlSourceSpec specifies what to fetch.
//
// +kubebuilder:validation:XValidation:rule="[has(self.git), has(self.oci)].exists_one(set, set)",message="set exactly one of git and oci"
// +kubebuilder:validation:XValidation:rule="!has(self.webhook) || !has(self.oci) || self.webhook.type in ['generic', 'generic-hmac']",message="webhook.type must be generic or generic-hmac for oci"
// +kubebuilder:validation:XValidation:rule="!has(self.commitStatus) || has(self.git)",message="commitStatus requires git"
type KsctlSourceSpec struct {
	Schedule `json:",inline"`

	// Git is the Git repository to fetch.
	// +optional
	Git *GitSource `json:"git,omitempty"`

	// OCI is the OCI repository to fetch.
	// +optional
	OCI *OCISource `json:"oci,omitempty"`

	// Ignore lists patterns of files to exclude from the artifact, one per line as in .gitignore.
	// They are evaluated after the patterns of .sourceignore files in the source. The last matching
	// pattern decides. Changes of excluded files only change the revision.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Ignore string `json:"ignore,omitempty"`

	// Webhook triggers an immediate fetch on a push, if the controller receives webhooks
	// (--webhook-addr). The path of the webhook is in status.webhookPath.
	// +optional
	Webhook *SourceWebhook `json:"webhook,omitempty"`

	// CommitStatus reports the state of the source's installs as statuses of the commits of the
	// repository.
	// +optional
	CommitStatus *SourceCommitStatus `json:"commitStatus,omitempty"`
}

// KsctlSourceStatus is the observed state of a source.
type KsctlSourceStatus struct {
	CommonStatus `json:",inline"`

	// Artifact is the last artifact that was fetched, in the same format as in Flux sources.
	// +optional
	Artifact *fluxmeta.Artifact `json:"artifact,omitempty"`

	// SourceVerificationMode is what was verified for the artifact, with the keys in the Secret at
	// that time: HEAD, Tag or TagAndHEAD for Git, or cosign or notation.
	// +optional
	SourceVerificationMode GitVerificationMode `json:"sourceVerificationMode,omitempty"`

	// ObservedContent identifies the inputs of the artifact other than its revision: the ignore
	// patterns, the kind of verification and the version of the Secret that it was verified with.
	// +optional
	ObservedContent string `json:"observedContent,omitempty"`

	// WebhookPath is the path for webhook requests, on the host that routes to --webhook-addr:
	// /hook/ followed by a digest that is derived from the token.
	// +optional
	WebhookPath string `json:"webhookPath,omitempty"`
}

// KsctlSource fetches stacks from a Git repository or an OCI registry, for
// clusters without Flux.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ksrc,categories=all;fluxcd;ksctl
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=".spec['git','oci'].url"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
type KsctlSource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KsctlSourceSpec `json:"spec"`
	// +kubebuilder:default={observedGeneration:-1}
	Status KsctlSourceStatus `json:"status,omitempty"`
}

// KsctlSourceList is a list of KsctlSources.
//
// +kubebuilder:object:root=true
type KsctlSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KsctlSource `json:"items"`
}

// CommonStatus returns the part of the status that every kind has.
func (in *KsctlSource) CommonStatus() *CommonStatus { return &in.Status.CommonStatus }

// Schedule returns the schedule of the spec.
func (in *KsctlSource) Schedule() *Schedule { return &in.Spec.Schedule }

// GetArtifact returns the last artifact that was fetched; nil if none was fetched yet.
func (in *KsctlSource) GetArtifact() *fluxmeta.Artifact { return in.Status.Artifact }
