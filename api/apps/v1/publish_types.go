package v1

// PublishedCondition says whether the ExternalArtifact of an install has what the
// install wants. It is there while spec.publish is set.
const PublishedCondition = "Published"

// PublishMode says when a render is published.
// +kubebuilder:validation:Enum=WhenReady;Only
type PublishMode string

// Publish modes.
const (
	// PublishWhenReady publishes what was installed here and seen ready.
	PublishWhenReady PublishMode = "WhenReady"
	// PublishOnly publishes what was rendered, and installs nothing here.
	PublishOnly PublishMode = "Only"
)

// PublishedSecrets says what becomes of Secrets where a render is published.
// +kubebuilder:validation:Enum=Refuse;Omit;Include
type PublishedSecrets string

// What becomes of Secrets.
const (
	// SecretsRefuse publishes nothing that has a Secret.
	SecretsRefuse PublishedSecrets = "Refuse"
	// SecretsOmit leaves Secrets out.
	SecretsOmit PublishedSecrets = "Omit"
	// SecretsInclude publishes them.
	SecretsInclude PublishedSecrets = "Include"
)

// Publish offers what a stack renders to as an ExternalArtifact of Flux, which
// others take as a source, such as a Kustomization of kustomize-controller. It has
// the namespace and the name of the install, and goes with it.
type Publish struct {
	// Mode is WhenReady, to install the stack here and to publish what was seen
	// ready, or Only, to publish what was rendered and to install nothing here.
	// WhenReady when unset.
	// +optional
	Mode PublishMode `json:"mode,omitempty"`

	// Secrets says what becomes of Secrets: whoever can reach the controller's file
	// server can read what is published. Refuse publishes nothing while the stack
	// renders a Secret, spec.valuesFrom reads one or something is decrypted; Omit leaves
	// rendered Secrets out, and refuses the others; Include publishes everything. Refuse when unset.
	// +optional
	Secrets PublishedSecrets `json:"secrets,omitempty"`
}
