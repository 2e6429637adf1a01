package v1

import fluxmeta "github.com/fluxcd/pkg/apis/meta"

// ChartRepository says how an install or a removal reaches one repository of charts.
// The Secrets are in its namespace, and are read as its account.
//
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || self.verify.provider == 'provenance' || self.repository.startsWith('oci://')",message="verify.provider cosign and notation are for oci:// alone"
// +kubebuilder:validation:XValidation:rule="!has(self.insecure) || !self.insecure || self.repository.startsWith('oci://')",message="insecure is for oci:// alone"
type ChartRepository struct {
	// Repository as the stack writes it in helm.repository, or as a chart in the source
	// does in its Chart.yaml.
	// +kubebuilder:validation:Pattern="^(https|oci)://"
	// +kubebuilder:validation:MaxLength=1024
	Repository string `json:"repository"`

	// SecretRef names a Secret with username and password, or with bearerToken,
	// or for oci:// of type kubernetes.io/dockerconfigjson. They are sent to the
	// host of the repository only.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// CertSecretRef names a Secret with ca.crt, the authorities to trust instead of
	// the system's, and tls.crt and tls.key, to show to the repository. Each is optional.
	// +optional
	CertSecretRef *fluxmeta.LocalObjectReference `json:"certSecretRef,omitempty"`

	// PassCredentials sends the credentials to another host, too, when the index of an
	// https:// repository says that a chart is there.
	// +optional
	PassCredentials bool `json:"passCredentials,omitempty"`

	// Insecure talks to an oci:// registry in plain HTTP.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// Verify refuses charts that nobody trusted has signed.
	// +optional
	Verify *ChartVerification `json:"verify,omitempty"`
}

// ChartVerification says which signatures charts need.
//
// +kubebuilder:validation:XValidation:rule="self.provider == 'cosign' || (has(self.secretRef) && !has(self.trustedRootSecretRef) && !has(self.matchOIDCIdentity))",message="provenance and notation need secretRef, and take neither trustedRootSecretRef nor matchOIDCIdentity"
// +kubebuilder:validation:XValidation:rule="self.provider != 'cosign' || (has(self.secretRef) ? !has(self.trustedRootSecretRef) && !has(self.matchOIDCIdentity) : has(self.trustedRootSecretRef) && has(self.matchOIDCIdentity))",message="cosign needs either secretRef with keys, or both trustedRootSecretRef and matchOIDCIdentity"
type ChartVerification struct {
	// Provider is what charts are signed with: provenance (the .prov file that
	// "helm package --sign" makes), or for oci:// cosign or notation.
	// +kubebuilder:validation:Enum=provenance;cosign;notation
	Provider string `json:"provider"`

	// SecretRef names the Secret with who is trusted. For provenance each value is an
	// OpenPGP public key, armored or not; for cosign entries *.pub are public keys; for
	// notation there are trustpolicy.json and certificates, *.crt or *.pem.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// TrustedRootSecretRef names a Secret with trusted_root.json: the authorities and
	// logs that vouch for signatures of cosign without a key. Nothing is fetched from
	// Sigstore's public instance.
	// +optional
	TrustedRootSecretRef *fluxmeta.LocalObjectReference `json:"trustedRootSecretRef,omitempty"`

	// MatchOIDCIdentity says who may sign with cosign without a key: whoever
	// matches one of these.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	MatchOIDCIdentity []OIDCIdentityMatch `json:"matchOIDCIdentity,omitempty"`
}

// Providers of signatures of charts.
const (
	ChartProvenance = "provenance"
	ChartCosign     = "cosign"
	ChartNotation   = "notation"
)

// ChartStatus is which chart of a repository is used.
type ChartStatus struct {
	// Repository that the chart came from.
	Repository string `json:"repository"`
	// Name of the chart.
	Name string `json:"name"`
	// Version of the chart.
	Version string `json:"version"`
	// Digest of the chart's archive.
	Digest string `json:"digest"`
}
