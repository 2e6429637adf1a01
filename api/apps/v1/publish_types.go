package v1

// PublishedCondition reports whether the ExternalArtifact of an install is up to date. It is only
// present while spec.publish is set.
const PublishedCondition = "Published"

// TestedCondition has the result of the tests that TestAnnotation requested.
const TestedCondition = "Tested"

// PublishMode specifies when a rendered stack is published.
// +kubebuilder:validation:Enum=WhenReady;Only
type PublishMode string

// Publish modes.
const (
	// PublishWhenReady applies the stack to the cluster, and publishes it when it is ready.
	PublishWhenReady PublishMode = "WhenReady"
	// PublishOnly publishes the rendered stack without applying it to the cluster.
	PublishOnly PublishMode = "Only"
)

// PublishedSecrets specifies how Secrets are handled when a rendered stack is published.
// +kubebuilder:validation:Enum=Refuse;Omit;Include
type PublishedSecrets string

// Values of PublishedSecrets.
const (
	// SecretsRefuse refuses to publish stacks with Secrets.
	SecretsRefuse PublishedSecrets = "Refuse"
	// SecretsOmit publishes the stack without its Secrets.
	SecretsOmit PublishedSecrets = "Omit"
	// SecretsInclude publishes the Secrets.
	SecretsInclude PublishedSecrets = "Include"
)

// Publish publishes the rendered stack as an ExternalArtifact of Flux, which other objects can use
// as their source, such as a Kustomization of kustomize-controller. The ExternalArtifact has the
// namespace and name of the install, and is deleted with it.
type Publish struct {
	// Mode is WhenReady, to apply the stack to the cluster and publish it when it is ready, or
	// Only, to publish the rendered stack without applying it. Defaults to WhenReady.
	// +optional
	Mode PublishMode `json:"mode,omitempty"`

	// Secrets specifies how Secrets are handled: anyone who can reach the controller's file server
	// can read what is published. Refuse publishes nothing while the stack renders a Secret,
	// spec.valuesFrom or spec.parametersFrom reads a Secret, or a file or value is decrypted. Omit
	// leaves out rendered Secrets, and publishes nothing in the other two cases. Include publishes
	// everything. Defaults to Refuse.
	// +optional
	Secrets PublishedSecrets `json:"secrets,omitempty"`
}
