package v1

import fluxmeta "github.com/fluxcd/pkg/apis/meta"

// AgentEndpoint is the gRPC endpoint of ksctl's own agent, or of the agent of this project.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != (has(self.plaintext) && self.plaintext)",message="set either secretRef (TLS) or plaintext: true (required by ksctl's own agent)"
type AgentEndpoint struct {
	// Address of the agent, as <host>:<port>.
	// +kubebuilder:validation:Pattern="^(\\[[0-9a-fA-F:]+\\]|[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?):[0-9]{1,5}$"
	// +kubebuilder:validation:MaxLength=261
	Address string `json:"address"`

	// SecretRef names a Secret with the TLS configuration: ca.crt, the certificate authority that
	// verifies the agent's certificate, and the client credentials: tls.crt and tls.key, or token,
	// or both.
	// +optional
	SecretRef *fluxmeta.LocalObjectReference `json:"secretRef,omitempty"`

	// ServerName is the host name in the agent's certificate. Defaults to the host of the address.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`

	// Plaintext connects without TLS and without client credentials: anyone on the network path can
	// read the data, and anyone who can reach the agent can use it. ksctl's own agent supports
	// nothing else.
	// +optional
	Plaintext bool `json:"plaintext,omitempty"`
}
