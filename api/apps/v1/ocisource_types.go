package v1

import (
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
)

// OCIRef selects an artifact. At most one of its fields is set; the tag latest
// when none is.
//
// +kubebuilder:validation:XValidation:rule="[has(self.tag), has(self.semver), has(self.digest)].filter(x, x).size() <= 1",message="set at most one of tag, semver and digest"
type OCIRef struct {
	// Tag that is followed.
	// +optional
	// +kubebuilder:validation:Pattern="^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
	Tag string `json:"tag,omitempty"`

	// SemVer is a range, such as ">=1.2.0 <2.0.0" or "1.x": the tag with the
	// highest version in it is taken. Tags are versions with or without a leading
	// v; prereleases count only where the range names one, as in ">=1.2.0-0".
	// +optional
	// +kubebuilder:validation:MaxLength=255
	SemVer string `json:"semver,omitempty"`

	// Digest of the artifact's manifest, as sha256:<hex>.
	// +optional
	// +kubebuilder:validation:Pattern="^sha256:[0-9a-f]{64}$"
	Digest string `json:"digest,omitempty"`
}

// OCILayerSelector chooses the layer that holds the files.
type OCILayerSelector struct {
	// MediaType of the layer. The first layer of that type is taken.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	MediaType string `json:"mediaType"`
}

// OCIVerificationProvider is what signatures are made with.
type OCIVerificationProvider string

// Providers of OCIVerification.
const (
	// Cosign of Sigstore.
	Cosign OCIVerificationProvider = "cosign"
	// Notation of the Notary Project.
	Notation OCIVerificationProvider = "notation"
)

// OIDCIdentityMatch selects who signed without a key.
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

// OCIVerification says whose signatures an artifact needs. One valid signature
// is enough.
//
// +kubebuilder:validation:XValidation:rule="self.provider != 'notation' || (has(self.secretRef) && !has(self.trustedRootSecretRef) && !has(self.matchOIDCIdentity))",message="notation needs secretRef, and takes neither trustedRootSecretRef nor matchOIDCIdentity"
// +kubebuilder:validation:XValidation:rule="self.provider != 'cosign' || (has(self.secretRef) ? !has(self.trustedRootSecretRef) && !has(self.matchOIDCIdentity) : has(self.trustedRootSecretRef) && has(self.matchOIDCIdentity))",message="cosign needs either secretRef with keys, or both trustedRootSecretRef and matchOIDCIdentity"
type OCIVerification struct {
	// Provider is what the artifact was signed with: cosign or notation.
	// +kubebuilder:validation:Enum=cosign;notation
	Provider OCIVerificationProvider `json:"provider"`

	// SecretRef names a Secret of this namespace. For cosign it holds the public
	// keys that are trusted, under names that end with .pub; for notation
	// trustpolicy.json, and certificates under names that end with .crt or .pem.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// TrustedRootSecretRef names a Secret of this namespace with
	// trusted_root.json: the authorities and logs that vouch for signatures of
	// cosign without a key. Nothing is fetched from Sigstore's public instance.
	// +optional
	TrustedRootSecretRef *fluxmeta.LocalObjectReference `json:"trustedRootSecretRef,omitempty"`

	// MatchOIDCIdentity says who may sign with cosign without a key: whoever
	// matches one of these.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	MatchOIDCIdentity []OIDCIdentityMatch `json:"matchOIDCIdentity,omitempty"`
}

// OCISource is a repository of an OCI registry.
type OCISource struct {
	// URL of the repository, without tag and digest, such as
	// oci://registry.example.com/platform/fleet.
	// +kubebuilder:validation:Pattern="^oci://.+"
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`

	// Ref selects the artifact.
	// +optional
	Ref *OCIRef `json:"ref,omitempty"`

	// LayerSelector chooses the layer that holds the files, as a gzip-compressed
	// tarball; the first layer when unset.
	// +optional
	LayerSelector *OCILayerSelector `json:"layerSelector,omitempty"`

	// SecretRef names a Secret of this namespace with the credentials, of type
	// kubernetes.io/dockerconfigjson. A change of the Secret is noticed at once.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// ServiceAccountName names an account of this namespace, whose
	// imagePullSecrets are taken, too.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// CertSecretRef names a Secret of this namespace with ca.crt, a certificate
	// authority to trust beside the system's, or with tls.crt and tls.key, the
	// certificate to show to the registry, or with all of them.
	// +optional
	CertSecretRef *fluxmeta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// ProxySecretRef names a Secret of this namespace with the proxy to go
	// through: address, and username and password if it asks for them.
	// +optional
	ProxySecretRef *fluxmeta.LocalObjectReference `json:"proxySecretRef,omitempty"`

	// Insecure allows plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Verify lets only artifacts through that somebody trusted has signed.
	// +optional
	Verify *OCIVerification `json:"verify,omitempty"`
}
