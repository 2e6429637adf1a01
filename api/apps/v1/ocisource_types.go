package v1

import (
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
)

// OCIRef selects an artifact. At most one field may be set. Defaults to the tag latest.
//
// +kubebuilder:validation:XValidation:rule="[has(self.tag), has(self.semver), has(self.digest)].filter(x, x).size() <= 1",message="set at most one of tag, semver and digest"
type OCIRef struct {
	// Tag selects the artifact of a tag. If the tag is moved, its new artifact is used.
	// +optional
	// +kubebuilder:validation:Pattern="^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
	Tag string `json:"tag,omitempty"`

	// SemVer is a range, such as ">=1.2.0 <2.0.0" or "1.x". It selects the tag with the highest
	// version in the range. Tags are versions with or without a leading v. Prereleases only match a
	// range that names one, as in ">=1.2.0-0".
	// +optional
	// +kubebuilder:validation:MaxLength=255
	SemVer string `json:"semver,omitempty"`

	// Digest of the artifact's manifest, as sha256:<hex>.
	// +optional
	// +kubebuilder:validation:Pattern="^sha256:[0-9a-f]{64}$"
	Digest string `json:"digest,omitempty"`
}

// OCILayerSelector selects the layer that contains the files.
type OCILayerSelector struct {
	// MediaType of the layer. The first layer of this type is used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	MediaType string `json:"mediaType"`
}

// OCIVerificationProvider is the tool that creates signatures.
type OCIVerificationProvider string

// Providers of OCIVerification.
const (
	// Cosign is the signature tool of Sigstore.
	Cosign OCIVerificationProvider = "cosign"
	// Notation is the signature tool of the Notary Project.
	Notation OCIVerificationProvider = "notation"
)

// OIDCIdentityMatch selects the signers of keyless signatures.
type OIDCIdentityMatch struct {
	// Issuer is a regular expression for the issuer in the certificate. Anchor it
	// with ^ and $, and escape dots.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Issuer string `json:"issuer"`

	// Subject is a regular expression for the identity in the certificate. Anchor
	// it with ^ and $, and escape dots.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Subject string `json:"subject"`
}

// OCIVerification specifies the signatures that an artifact requires. One valid signature is
// sufficient.
//
// +kubebuilder:validation:XValidation:rule="self.provider != 'notation' || (has(self.secretRef) && !has(self.trustedRootSecretRef) && !has(self.matchOIDCIdentity))",message="notation requires secretRef, and does not allow trustedRootSecretRef and matchOIDCIdentity"
// +kubebuilder:validation:XValidation:rule="self.provider != 'cosign' || (has(self.secretRef) ? !has(self.trustedRootSecretRef) && !has(self.matchOIDCIdentity) : has(self.trustedRootSecretRef) && has(self.matchOIDCIdentity))",message="cosign requires either secretRef with keys, or both trustedRootSecretRef and matchOIDCIdentity"
type OCIVerification struct {
	// Provider is the tool that the artifact is signed with: cosign or notation.
	// +kubebuilder:validation:Enum=cosign;notation
	Provider OCIVerificationProvider `json:"provider"`

	// SecretRef names a Secret in this namespace. For cosign, it contains the trusted public keys,
	// in entries that end with .pub. For notation, it contains trustpolicy.json, and certificates
	// in entries that end with .crt or .pem.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// TrustedRootSecretRef names a Secret in this namespace with trusted_root.json: the certificate
	// authorities and transparency logs that verify keyless cosign signatures. Nothing is fetched
	// from Sigstore's public instance.
	// +optional
	TrustedRootSecretRef *fluxmeta.LocalObjectReference `json:"trustedRootSecretRef,omitempty"`

	// MatchOIDCIdentity lists the identities that are trusted for keyless cosign signatures. A
	// signer must match one of them.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	MatchOIDCIdentity []OIDCIdentityMatch `json:"matchOIDCIdentity,omitempty"`
}

// OCISource is a repository in an OCI registry.
type OCISource struct {
	// URL of the repository, without tag and digest, such as
	// oci://registry.example.com/platform/fleet.
	// +kubebuilder:validation:Pattern="^oci://.+"
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// Ref selects the artifact.
	// +optional
	Ref *OCIRef `json:"ref,omitempty"`

	// LayerSelector selects the layer that contains the files, as a gzip-compressed tarball.
	// Defaults to the first layer.
	// +optional
	LayerSelector *OCILayerSelector `json:"layerSelector,omitempty"`

	// SecretRef names a Secret in this namespace with the credentials, of type
	// kubernetes.io/dockerconfigjson. Changes to the Secret are detected immediately.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// ServiceAccountName names a service account in this namespace whose imagePullSecrets are also
	// used.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// CertSecretRef names a Secret in this namespace with ca.crt, a certificate authority to trust
	// in addition to the system's, or with tls.crt and tls.key, the client certificate for the
	// registry, or with all of them.
	// +optional
	CertSecretRef *fluxmeta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// ProxySecretRef names a Secret in this namespace with the proxy to use: address, and username
	// and password if the proxy requires them.
	// +optional
	ProxySecretRef *fluxmeta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Insecure allows plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Verify refuses artifacts without a signature of a trusted signer.
	// +optional
	Verify *OCIVerification `json:"verify,omitempty"`
}
