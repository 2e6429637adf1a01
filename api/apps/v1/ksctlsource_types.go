package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
)

// GitRef selects a commit. At most one of its fields is set; the branch main
// when none is.
//
// +kubebuilder:validation:XValidation:rule="[has(self.branch), has(self.tag), has(self.semver), has(self.commit)].filter(x, x).size() <= 1",message="set at most one of branch, tag, semver and commit"
type GitRef struct {
	// Branch whose head is followed.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Branch string `json:"branch,omitempty"`

	// Tag that is taken. One that is moved is followed.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	Tag string `json:"tag,omitempty"`

	// SemVer is a range, such as ">=1.2.0 <2.0.0" or "1.x": the tag with the
	// highest version in it is taken. Tags are versions with or without a leading
	// v; prereleases count only where the range names one, as in ">=1.2.0-0".
	// +optional
	// +kubebuilder:validation:MaxLength=255
	SemVer string `json:"semver,omitempty"`

	// Commit that is taken, as a full SHA-1 or SHA-256.
	// +optional
	// +kubebuilder:validation:Pattern="^([0-9a-f]{40}|[0-9a-f]{64})$"
	Commit string `json:"commit,omitempty"`
}

// GitVerificationMode says which signatures are checked.
type GitVerificationMode string

// Modes of GitVerification.
const (
	// VerifyHEAD checks the signature of the commit.
	VerifyHEAD GitVerificationMode = "HEAD"
	// VerifyTag checks the signature of the tag.
	VerifyTag GitVerificationMode = "Tag"
	// VerifyTagAndHEAD checks both.
	VerifyTagAndHEAD GitVerificationMode = "TagAndHEAD"
)

// GitVerification says whose signatures a commit or a tag needs.
type GitVerification struct {
	// Mode is what has to be signed: HEAD (the commit), Tag, or TagAndHEAD. HEAD when unset.
	// +optional
	// +kubebuilder:validation:Enum=HEAD;Tag;TagAndHEAD
	Mode GitVerificationMode `json:"mode,omitempty"`

	// SecretRef names a Secret of this namespace with the public keys that are
	// trusted, under any names: armored OpenPGP keys, or lines with SSH public keys
	// as in authorized_keys or allowed_signers.
	SecretRef fluxmeta.LocalObjectReference `json:"secretRef"`
}

// GitSource is a repository that is served over HTTPS, HTTP or SSH.
//
// +kubebuilder:validation:XValidation:rule="!self.url.startsWith('ssh://') || has(self.secretRef)",message="a URL of ssh needs a secretRef with identity and known_hosts"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !has(self.verify.mode) || self.verify.mode == 'HEAD' || (has(self.ref) && (has(self.ref.tag) || has(self.ref.semver)))",message="verify.mode Tag and TagAndHEAD need ref.tag or ref.semver"
type GitSource struct {
	// URL of the repository, such as https://git.example.com/team/fleet.git or
	// ssh://git@git.example.com/team/fleet.git.
	// +kubebuilder:validation:Pattern="^(https?|ssh)://.+"
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// Ref selects the commit.
	// +optional
	Ref *GitRef `json:"ref,omitempty"`

	// SecretRef names a Secret of this namespace with what opens the repository.
	// For HTTPS: username and password, or bearerToken; ca.crt for a certificate
	// authority of your own. For SSH: identity (the private key), password (of the
	// key, if it has one) and known_hosts. A change of the Secret is noticed at once.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// ProxySecretRef names a Secret of this namespace with the proxy to go
	// through: address, and username and password if it asks for them. SSH goes
	// through a SOCKS5 proxy only.
	// +optional
	ProxySecretRef *fluxmeta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// RecurseSubmodules takes the files of submodules too, and of theirs. They count
	// towards the same limits. User, password and token are shown to the server of
	// the URL only.
	// +optional
	RecurseSubmodules bool `json:"recurseSubmodules,omitempty"`

	// Verify lets only commits through that somebody trusted has signed.
	// +optional
	Verify *GitVerification `json:"verify,omitempty"`
}

// WebhookType is who tells of pushes, and with that how its requests are checked.
type WebhookType string

// Types of SourceWebhook.
const (
	// GitHubWebhook signs with X-Hub-Signature-256.
	GitHubWebhook WebhookType = "github"
	// GitLabWebhook shows the token in X-Gitlab-Token.
	GitLabWebhook WebhookType = "gitlab"
	// GiteaWebhook signs with X-Gitea-Signature, as Forgejo does.
	GiteaWebhook WebhookType = "gitea"
	// GenericWebhook shows the token in Authorization, as "Bearer <token>".
	GenericWebhook WebhookType = "generic"
	// GenericHMACWebhook signs with X-Signature, as "sha256=<hex>".
	GenericHMACWebhook WebhookType = "generic-hmac"
)

// SourceWebhook has the source looked at as soon as somebody tells of a push.
//
// +kubebuilder:validation:XValidation:rule="size(self.secretRef.name) > 0",message="secretRef: name the Secret with the token"
type SourceWebhook struct {
	// Type is who tells of pushes: github, gitlab, gitea (Forgejo, too), or anything
	// else that sends the token (generic) or signs with it (generic-hmac). No
	// request is taken without a check.
	// +kubebuilder:validation:Enum=github;gitlab;gitea;generic;generic-hmac
	Type WebhookType `json:"type"`

	// SecretRef names a Secret of this namespace whose token, of at least 16
	// bytes, the sender knows, too. A change of the Secret is noticed at once; the
	// path changes with it.
	SecretRef fluxmeta.LocalObjectReference `json:"secretRef"`
}

// CommitStatusType is whose API commit statuses are written with.
type CommitStatusType string

// Types of SourceCommitStatus.
const (
	// GitHubStatus is github.com, and GitHub Enterprise.
	GitHubStatus CommitStatusType = "github"
	// GitLabStatus is gitlab.com, and GitLab elsewhere.
	GitLabStatus CommitStatusType = "gitlab"
	// GiteaStatus is Gitea, and Forgejo.
	GiteaStatus CommitStatusType = "gitea"
)

// SourceCommitStatus has installs of the source stand at the commit that they are of:
// pending, success or failure, one for each install.
//
// +kubebuilder:validation:XValidation:rule="size(self.secretRef.name) > 0",message="secretRef: name the Secret with the token"
type SourceCommitStatus struct {
	// Type is whose API is spoken: github, gitlab or gitea (Forgejo, too).
	// +kubebuilder:validation:Enum=github;gitlab;gitea
	Type CommitStatusType `json:"type"`

	// SecretRef names a Secret of this namespace with a token that may write commit
	// statuses, under token; and ca.crt for a certificate authority of your own, where
	// that of git.secretRef is not the one. A change of the Secret is noticed at once.
	SecretRef fluxmeta.LocalObjectReference `json:"secretRef"`

	// Address of the repository, such as https://git.example.com/team/fleet, if it is
	// not git.url: for a repository that is fetched from a mirror, or over SSH from
	// a host of another name. The token is shown to the host of this address, or to that of
	// git.url without it; for github.com to api.github.com.
	// +optional
	// +kubebuilder:validation:Pattern="^https?://.+"
	// +kubebuilder:validation:MaxLength=2048
	Address string `json:"address,omitempty"`

	// Cluster is what this cluster is called in the names of statuses, which are
	// ksctlinstall/<namespace>/<name>/<cluster>: clusters that follow one repository
	// need names of their own. The first part of the source's UID when unset, which is
	// another one when the cluster is built anew.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster,omitempty"`
}

// KsctlSourceSpec says what to fetch.
//
// +kubebuilder:validation:XValidation:rule="[has(self.git), has(self.oci)].exists_one(set, set)",message="set exactly one of git and oci: where to fetch from"
// +kubebuilder:validation:XValidation:rule="!has(self.webhook) || !has(self.oci) || self.webhook.type in ['generic', 'generic-hmac']",message="webhook.type of a registry is generic or generic-hmac"
// +kubebuilder:validation:XValidation:rule="!has(self.commitStatus) || has(self.git)",message="commitStatus needs git: what comes from a registry is no commit"
type KsctlSourceSpec struct {
	Schedule `json:",inline"`

	// Git is the repository to fetch from.
	// +optional
	Git *GitSource `json:"git,omitempty"`

	// OCI is the repository of a registry to fetch from.
	// +optional
	OCI *OCISource `json:"oci,omitempty"`

	// Ignore are patterns, one a line as in .gitignore, of files to leave out of
	// the artifact. They come after those of files named .sourceignore in the source,
	// and the last one that fits counts. Changes of files that are left out change
	// nothing but the revision.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Ignore string `json:"ignore,omitempty"`

	// Webhook has a push start a look at once, where the controller receives
	// pushes (--webhook-addr). The path to send to is in status.webhookPath.
	// +optional
	Webhook *SourceWebhook `json:"webhook,omitempty"`

	// CommitStatus writes how installs of the source stand to the commits of the
	// repository.
	// +optional
	CommitStatus *SourceCommitStatus `json:"commitStatus,omitempty"`
}

// KsctlSourceStatus is what was fetched.
type KsctlSourceStatus struct {
	CommonStatus `json:",inline"`

	// Artifact is the last tree that was fetched, in the form that Flux sources use.
	// +optional
	Artifact *fluxmeta.Artifact `json:"artifact,omitempty"`

	// SourceVerificationMode is what was verified of the artifact, by the keys that
	// were in the Secret then: HEAD, Tag or TagAndHEAD of Git, or cosign or notation.
	// +optional
	SourceVerificationMode GitVerificationMode `json:"sourceVerificationMode,omitempty"`

	// ObservedContent identifies what made the artifact, beside its revision: what
	// is ignored, and how and by which version of the Secret it was verified.
	// +optional
	ObservedContent string `json:"observedContent,omitempty"`

	// WebhookPath is where pushes are received, on the host that leads to
	// --webhook-addr: /hook/ and a digest that follows from the token.
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

// Schedule says when the object is looked at again.
func (in *KsctlSource) Schedule() *Schedule { return &in.Spec.Schedule }

// GetArtifact returns the last tree that was fetched, nil before the first.
func (in *KsctlSource) GetArtifact() *fluxmeta.Artifact { return in.Status.Artifact }
