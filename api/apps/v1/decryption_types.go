package v1

import fluxmeta "github.com/fluxcd/pkg/apis/meta"

// Decryption configures the decryption of encrypted files in the source.
type Decryption struct {
	// Provider of the encryption. Must be sops.
	// +kubebuilder:validation:Enum=sops
	Provider string `json:"provider"`

	// SecretRef names a Secret in this namespace with the decryption keys, in the format of Flux:
	// private age keys in *.agekey, private OpenPGP keys in *.asc, and credentials in sops.aws-kms,
	// sops.azure-kv, sops.gcp-kms and sops.vault-token. Credentials of Huawei Cloud in sops.hckms
	// are supported in addition to those of Flux. Changes to the Secret are detected immediately.
	SecretRef fluxmeta.LocalObjectReference `json:"secretRef"`
}
