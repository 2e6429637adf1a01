package v1

import fluxmeta "github.com/fluxcd/pkg/apis/meta"

// Decryption says how files are decrypted that are encrypted in the source.
type Decryption struct {
	// Provider of the encryption: sops.
	// +kubebuilder:validation:Enum=sops
	Provider string `json:"provider"`

	// SecretRef names a Secret of this namespace with keys, as Flux has them: private
	// keys of age in *.agekey, of OpenPGP in *.asc, and credentials in sops.aws-kms,
	// sops.azure-kv, sops.gcp-kms and sops.vault-token; Flux does not have those of
	// Huawei Cloud in sops.hckms. A change of the Secret is noticed at once.
	SecretRef fluxmeta.LocalObjectReference `json:"secretRef"`
}
