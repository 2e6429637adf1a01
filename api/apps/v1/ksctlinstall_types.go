package v1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CatalogKind is the source kind of the stacks that are shipped with the controller.
const CatalogKind = "Catalog"

// SourceRef names the source that contains the stack.
//
// +kubebuilder:validation:XValidation:rule="self.kind == 'Catalog' ? !has(self.name) && !has(self.namespace) : has(self.name)",message="name is required; kind Catalog has neither name nor namespace"
type SourceRef struct {
	// Kind of the source: a Flux source, a KsctlSource, or Catalog for the stacks that are shipped
	// with the controller.
	// +kubebuilder:validation:Enum=GitRepository;OCIRepository;Bucket;ExternalArtifact;KsctlSource;Catalog
	Kind string `json:"kind"`

	// Name of the source.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Namespace of the source. Defaults to the namespace of the install. Another namespace is
	// refused if the controller runs with --no-cross-namespace-refs.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// ComponentChoice configures one component of the stack for one install.
type ComponentChoice struct {
	// Name of the component in the stack.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Version pins the version of the component. Defaults to the version in the stack.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// Digest that the chart of this version must have, if the chart comes from a repository. For
	// the version in the stack, it defaults to the digest in the stack.
	// +optional
	// +kubebuilder:validation:Pattern="^sha256:[0-9a-f]{64}$"
	Digest string `json:"digest,omitempty"`

	// Enabled is false to leave out the component. Objects of the component that are already
	// installed are pruned. Defaults to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// CommonMetadata are labels and annotations of the objects of the component.
	// +optional
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`

	// NamePrefix of the objects of the component, in place of that in the stack. References among
	// the objects of the install follow. Namespaces, CustomResourceDefinitions and APIServices keep
	// their names.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9][-a-z0-9.]*$"
	// +kubebuilder:validation:MaxLength=200
	NamePrefix string `json:"namePrefix,omitempty"`

	// NameSuffix is like NamePrefix, at the end of the names.
	// +optional
	// +kubebuilder:validation:Pattern="^[-a-z0-9.]*[a-z0-9]$"
	// +kubebuilder:validation:MaxLength=200
	NameSuffix string `json:"nameSuffix,omitempty"`

	// KustomizeComponents are paths of Components that the kustomization of the component also
	// uses, relative to its folder.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	KustomizeComponents []string `json:"kustomizeComponents,omitempty"`
	// ReleaseName is the name of the component's Helm release. Defaults to the one in the stack.
	// Another name is another release: objects whose name depends on it are replaced.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
	// +kubebuilder:validation:MaxLength=53
	ReleaseName string `json:"releaseName,omitempty"`

	// CRDs is how the CustomResourceDefinitions in the folder crds/ of the component's chart are
	// applied: Apply creates and updates them, CreateOnly creates the missing ones and leaves the
	// others as they are, Skip leaves them out. Defaults to the policy in the stack, else to Apply.
	// +optional
	CRDs CRDPolicy `json:"crds,omitempty"`

	// Hooks is whether the hooks of the component's chart run: Run, or Skip for none, not even
	// those of a removal and tests. Defaults to the policy in the stack, else to Run.
	// +optional
	Hooks HookPolicy `json:"hooks,omitempty"`

	// SkipSchemaValidation is true to not check the values with the values.schema.json of the
	// component's chart and of its subcharts. Defaults to the setting in the stack, else to false.
	// +optional
	SkipSchemaValidation *bool `json:"skipSchemaValidation,omitempty"`

	// Override changes what the component renders. Reserved keys are values (Helm values), images,
	// replicas and patches (as in a kustomization). Every other key is a parameter that the
	// component declares.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Override *apiextensionsv1.JSON `json:"override,omitempty"`
}

// CommonMetadata are labels and annotations of all objects of an install or of a component.
// Selectors and pod templates stay. Those of a component win over those of the install, and those
// of the install over those in the stack.
type CommonMetadata struct {
	// Labels to add to the objects, or to replace.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations to add to the objects, or to replace.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// GeneratePolicy is what happens when the templates of a chart generate values.
type GeneratePolicy string

// Policies of KsctlInstallSpec.Generate.
const (
	GenerateKeep   GeneratePolicy = "Keep"
	GenerateRefuse GeneratePolicy = "Refuse"
)

// KsctlInstallSpec is the desired state of one stack on one cluster.
//
// +kubebuilder:validation:XValidation:rule="self.sourceRef.kind != 'Catalog' || (has(self.stackVersion) && size(self.stackVersion) > 0)",message="stackVersion is required for sourceRef.kind Catalog, so that an upgrade of the controller changes nothing"
// +kubebuilder:validation:XValidation:rule="self.sourceRef.kind != 'Catalog' || !has(self.path) || size(self.path) == 0",message="path is not allowed for sourceRef.kind Catalog"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterRef) || !has(self.kubeConfig)",message="set at most one of clusterRef and kubeConfig"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterSelector) || !(has(self.clusterRef) || has(self.kubeConfig) || has(self.publish) || has(self.takeOver))",message="clusterRef, kubeConfig, publish and takeOver are not allowed with clusterSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.valuesFrom) || has(self.clusterRef) || has(self.clusterSelector) || self.valuesFrom.all(v, v.kind != 'Cluster')",message="valuesFrom kind Cluster requires clusterRef or clusterSelector"
type KsctlInstallSpec struct {
	Schedule `json:",inline"`

	// TargetCluster is the cluster that the stack is installed on. It cannot be changed while
	// objects are installed.
	TargetCluster `json:",inline"`

	// ClusterSelector installs the stack on every selected KsctlCluster in the namespace. A
	// KsctlInstall is created for each of them. It is deleted when its cluster is no longer
	// selected.
	// +optional
	ClusterSelector *ClusterSelector `json:"clusterSelector,omitempty"`

	// SourceRef names the source that contains the stack.
	SourceRef SourceRef `json:"sourceRef"`

	// Path is the folder in the source that contains stack.yaml or <stack>/stack.yaml. Defaults to
	// the root of the source.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// Stack is the name of the stack.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Stack string `json:"stack"`

	// StackVersion must be exactly the version that the stack in the source declares, if it is set.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	StackVersion string `json:"stackVersion,omitempty"`

	// Parameters are the values of stack-wide parameters that the stack declares.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Parameters *apiextensionsv1.JSON `json:"parameters,omitempty"`

	// Components configures individual components. Components that are not listed use the defaults
	// of the stack.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Components []ComponentChoice `json:"components,omitempty"`

	// CommonMetadata are labels and annotations of all objects of the stack.
	// +optional
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`

	// Strict makes an unknown key in an override an error if no schema defines the known keys.
	// Otherwise an unknown key is a warning.
	// +optional
	Strict bool `json:"strict,omitempty"`

	// ValuesFrom reads values from ConfigMaps and Secrets, which are watched, and from the
	// KsctlCluster. Precedence: stack defaults < valuesFrom < parameters < component override.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ValuesFrom []ValuesReference `json:"valuesFrom,omitempty"`

	// ParametersFrom reads stack-wide parameters from ConfigMaps and Secrets, which are watched.
	// Later entries override earlier ones, and parameters override them all. Keys that are no
	// parameter are ignored, with a warning. Expressions of the stack can only pass on a value of a
	// Secret as a whole, into Secrets and chart values, unless its schema says sensitive: false.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ParametersFrom []ParametersReference `json:"parametersFrom,omitempty"`

	// Charts configures the access to chart repositories of the stack. Repositories that are not
	// listed are accessed without credentials.
	// +optional
	// +listType=map
	// +listMapKey=repository
	// +kubebuilder:validation:MaxItems=64
	Charts []ChartRepository `json:"charts,omitempty"`

	// Generate is what happens when the templates of a chart generate a password, a key, a
	// certificate or a salt, or read the clock. Keep generates each value once, and keeps it in a
	// Secret ksctl-generated-<hash> beside the objects of the component. Refuse derives random
	// strings from the install and the chart, so that they change with the chart, and refuses the
	// rest. Installs that only publish, or publish without secrets: Include, always refuse.
	// Defaults to Keep.
	// +optional
	// +kubebuilder:validation:Enum=Keep;Refuse
	Generate GeneratePolicy `json:"generate,omitempty"`

	// Decryption configures the decryption of SOPS-encrypted files in the source and values in
	// valuesFrom. Encrypted files and values are refused if it is unset.
	// +optional
	Decryption *Decryption `json:"decryption,omitempty"`

	// ServiceAccountName is the service account in the install's namespace whose permissions are
	// used for every request to this cluster. Defaults to the controller's
	// --default-service-account.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// TargetNamespace is the namespace of namespaced objects if neither they nor their component
	// specify one. Defaults to the namespace of the install.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// DependsOn lists objects that must be ready before this install starts. An install is removed
	// after the installs that depend on it.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	DependsOn []Dependency `json:"dependsOn,omitempty"`

	// TakeOver names an install in this namespace whose objects this install takes over. The
	// objects that this install needs are handed over when the other install no longer needs them,
	// or is deleted. Use it to rename an install.
	// +optional
	TakeOver *TakeOver `json:"takeOver,omitempty"`

	// Drift specifies how changes by other clients are handled.
	// +optional
	Drift *Drift `json:"drift,omitempty"`

	// Adopt specifies which existing objects may be adopted. Defaults to Unowned.
	// +optional
	Adopt AdoptMode `json:"adopt,omitempty"`

	// Prune removes objects that have left the stack. Defaults to true.
	// +optional
	Prune *bool `json:"prune,omitempty"`

	// Guard limits the deletions that a change of the source may cause.
	// +optional
	Guard *Guard `json:"guard,omitempty"`

	// DeletionPolicy specifies what happens to the objects when the install is deleted. Defaults to
	// Delete.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Publish publishes the rendered stack as an ExternalArtifact of Flux. If it is unset, nothing
	// is published, and a published artifact is deleted.
	// +optional
	Publish *Publish `json:"publish,omitempty"`

	// Force recreates an object if a change affects an immutable field, unless guard.protectKinds,
	// the annotation ksctl.com/prevent-deletion or helm.sh/resource-policy forbids its deletion.
	// +optional
	Force bool `json:"force,omitempty"`
}

// KsctlInstallStatus is the observed state of an install.
type KsctlInstallStatus struct {
	CommonStatus `json:",inline"`

	// LastAttemptedRevision is the last revision of the source that was attempted.
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`

	// LastAppliedRevision is the last revision of the source that was applied and became ready. If
	// spec.publish.mode is Only, it is the last revision that was published.
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`

	// LastHandledTest is the value of the annotation ksctl.com/test whose tests have ended.
	// +optional
	LastHandledTest string `json:"lastHandledTest,omitempty"`

	// Artifact is the artifact that an install of one cluster of a clusterSelector applied last.
	// The install keeps using it until the rollout releases another artifact to it.
	// +optional
	Artifact *TakenArtifact `json:"artifact,omitempty"`

	// StackVersion is the last version of the stack that was attempted.
	// +optional
	StackVersion string `json:"stackVersion,omitempty"`

	// Components are the states of the components, in the order in which they are applied.
	// +optional
	// +listType=map
	// +listMapKey=name
	Components []ComponentStatus `json:"components,omitempty"`

	// Inventory lists the objects that the install owns.
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`

	// Cluster is the cluster with the objects in the inventory: <namespace>.<name> of a
	// KsctlCluster, or secret:<namespace>.<name> of a Secret with a kubeconfig, followed by :<key>
	// if a key is specified. Unset for the cluster that the controller runs in.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// ClusterUID is the UID of the namespace kube-system of the cluster in status.cluster. It is
	// used to detect if another cluster is reached instead. Unset if the namespace cannot be read.
	// +optional
	ClusterUID string `json:"clusterUID,omitempty"`

	// Clusters are the clusters that spec.clusterSelector selects, and those that it selected
	// before and that still have objects of the stack.
	// +optional
	// +listType=map
	// +listMapKey=name
	Clusters []InstalledCluster `json:"clusters,omitempty"`

	// Removals are the KsctlRemoves that the install takes into account.
	// +optional
	// +listType=map
	// +listMapKey=name
	Removals []InstallRemoval `json:"removals,omitempty"`

	// SharedDefinitions are the names of the CustomResourceDefinitions of the stack that other
	// installs have, and that this install uses.
	// +optional
	// +listType=set
	SharedDefinitions []string `json:"sharedDefinitions,omitempty"`

	// Warnings of the last render. At most 10 are listed.
	// +optional
	Warnings []string `json:"warnings,omitempty"`
}

// KsctlInstall keeps one stack installed.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kin;ksi,categories=all;fluxcd;ksctl
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
// +kubebuilder:printcolumn:name="Stack",type=string,JSONPath=".spec.stack",priority=1
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=".status.stackVersion",priority=1
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=".status.cluster",priority=1
// +kubebuilder:validation:XValidation:rule="!has(self.spec.takeOver) || self.spec.takeOver.name != self.metadata.name || (oldSelf.hasValue() && has(oldSelf.value().spec.takeOver) && oldSelf.value().spec.takeOver == self.spec.takeOver)",optionalOldSelf=true,message="spec.takeOver must name another KsctlInstall"
type KsctlInstall struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KsctlInstallSpec `json:"spec,omitempty"`
	// +kubebuilder:default={observedGeneration:-1}
	Status KsctlInstallStatus `json:"status,omitempty"`
}

// KsctlInstallList is a list of KsctlInstalls.
//
// +kubebuilder:object:root=true
type KsctlInstallList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KsctlInstall `json:"items"`
}

// CommonStatus returns the part of the status that every kind has.
func (in *KsctlInstall) CommonStatus() *CommonStatus { return &in.Status.CommonStatus }

// Schedule returns the schedule of the spec.
func (in *KsctlInstall) Schedule() *Schedule { return &in.Spec.Schedule }
