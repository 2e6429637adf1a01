package v1

import fluxmeta "github.com/fluxcd/pkg/apis/meta"

// AgentEndpoint is where ksctl's agent, or ours, answers over gRPC.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != (has(self.plaintext) && self.plaintext)",message="set secretRef, for TLS, or plaintext: true, which ksctl's own agent needs"
type AgentEndpoint struct {
	// Address of the agent: <host>:<port>.
	// +kubebuilder:validation:Pattern="^(\\[[0-9a-fA-F:]+\\]|[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?):[0-9]{1,5}$"
	// +kubebuilder:validation:MaxLength=261
	Address string `json:"address"`

	// SecretRef names a Secret with what TLS needs: ca.crt, that the agent's certificate is
	// verified against, and who we are: tls.crt and tls.key, or token, or both.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// ServerName that the agent's certificate is for. The host of the address when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`

	// Plaintext speaks without TLS, and says nothing of who we are: whoever listens sees
	// what is sent, and whoever reaches the agent may use it. ksctl's own agent has nothing
	// else.
	// +optional
	Plaintext bool `json:"plaintext,omitempty"`
}
