package v1

import fluxmeta "github.com/fluxcd/pkg/apis/meta"

// ChartRepository configures the access of an install or a removal to a chart repository. The
// Secrets are in the namespace of the install or removal, and are read with the permissions of its
// service account.
//
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || self.verify.provider == 'provenance' || self.repository.startsWith('oci://')",message="verify.provider cosign and notation are only allowed for oci:// repositories"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || self.repository.startsWith('oci://')",message="insecure is only allowed for oci:// repositories"
type ChartRepository struct {
	// Repository is the URL of the repository, exactly as in helm.repository of the stack, or as in
	// Chart.yaml of a chart in the source.
	// +kubebuilder:validation:Pattern="^(https|oci)://"
	// +kubebuilder:validation:MaxLength=1024
	Repository string `json:"repository"`

	// SecretRef names a Secret with username and password, or with bearerToken, or for oci:// of
	// type kubernetes.io/dockerconfigjson. The credentials are only sent to the host of the
	// repository.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// CertSecretRef names a Secret with ca.crt, the certificate authorities to trust instead of the
	// system's, and with tls.crt and tls.key, the client certificate for the repository. Each is
	// optional.
	// +optional
	CertSecretRef *fluxmeta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// PassCredentials also sends the credentials to other hosts, if the index of an https://
	// repository lists a chart there.
	// +optional
	PassCredentials bool `json:"passCredentials,omitempty"`

	// Insecure connects to an oci:// registry over plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Verify refuses charts without a signature of a trusted signer.
	// +optional
	Verify *ChartVerification `json:"verify,omitempty"`
}

// ChartVerification specifies the signatures that charts require.
//
// +kubebuilder:validation:XValidation:rule="self.provider == 'cosign' || (has(self.secretRef) && !has(self.trustedRootSecretRef) && !has(self.matchOIDCIdentity))",message="provenance and notation require secretRef, and do not allow trustedRootSecretRef and matchOIDCIdentity"
// +kubebuilder:validation:XValidation:rule="self.provider != 'cosign' || (has(self.secretRef) ? !has(self.trustedRootSecretRef) && !has(self.matchOIDCIdentity) : has(self.trustedRootSecretRef) && has(self.matchOIDCIdentity))",message="cosign requires either secretRef with keys, or both trustedRootSecretRef and matchOIDCIdentity"
type ChartVerification struct {
	// Provider is the kind of signature: provenance (the .prov file that "helm package --sign"
	// creates), or for oci:// cosign or notation.
	// +kubebuilder:validation:Enum=provenance;cosign;notation
	Provider string `json:"provider"`

	// SecretRef names the Secret with the trusted keys. For provenance, each value is an OpenPGP
	// public key, armored or not. For cosign, the entries *.pub are public keys. For notation, it
	// has trustpolicy.json and certificates in *.crt or *.pem.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// TrustedRootSecretRef names a Secret with trusted_root.json: the certificate authorities and
	// transparency logs that verify keyless cosign signatures. Nothing is fetched from Sigstore's
	// public instance.
	// +optional
	TrustedRootSecretRef *fluxmeta.LocalObjectReference `json:"trustedRootSecretRef,omitempty"`

	// MatchOIDCIdentity lists the identities that are trusted for keyless cosign signatures. A
	// signer must match one of them.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	MatchOIDCIdentity []OIDCIdentityMatch `json:"matchOIDCIdentity,omitempty"`
}

// Signature providers of charts.
const (
	ChartProvenance = "provenance"
	ChartCosign     = "cosign"
	ChartNotation   = "notation"
)

// ChartStatus identifies the chart of a repository that is used.
type ChartStatus struct {
	// Repository of the chart.
	Repository string `json:"repository"`
	// Name of the chart.
	Name string `json:"name"`
	// Version of the chart.
	Version string `json:"version"`
	// Digest of the chart's archive.
	Digest string `json:"digest"`
}
