package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterReference names a KsctlCluster.
type ClusterReference struct {
	// Name of the KsctlCluster.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Namespace of the KsctlCluster. Defaults to the namespace of the object with the reference.
	// Another namespace is refused if the controller runs with --no-cross-namespace-refs.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// SecretKeyReference names a key of a Secret in the namespace of the object with the reference.
type SecretKeyReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the Secret that contains the kubeconfig. Defaults to value, or to value.yaml if there
	// is no key value.
	// +optional
	// +kubebuilder:validation:Pattern="^[-._a-zA-Z0-9]+$"
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// KubeConfigReference names a kubeconfig, in the same format as in Flux.
type KubeConfigReference struct {
	// SecretRef names a Secret in this namespace with a kubeconfig.
	SecretRef SecretKeyReference `json:"secretRef"`
}

// FailurePolicy specifies how a rollout continues after a cluster or an object has failed.
// +kubebuilder:validation:Enum=Stop;Continue
type FailurePolicy string

// Failure policies.
const (
	// FailureStop does not roll out the change to more clusters or objects until the failed ones
	// are ready, or until the next change.
	FailureStop FailurePolicy = "Stop"
	// FailureContinue continues with the others.
	FailureContinue FailurePolicy = "Continue"
)

// DefaultMaxConcurrent is the default of maxConcurrent of a ClusterSelector and of a KindRollout.
const DefaultMaxConcurrent = 5

// ClusterSelector selects KsctlClusters in the namespace by their labels. An empty selector selects
// all of them.
type ClusterSelector struct {
	metav1.LabelSelector `json:",inline"`

	// MaxConcurrent is the maximum number of clusters that apply a change at the same time.
	// Defaults to 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// OnFailure specifies whether a change is rolled out to more clusters after a cluster has
	// failed. Defaults to Stop.
	// +optional
	OnFailure FailurePolicy `json:"onFailure,omitempty"`
}

// FleetLabel is set on each install that is created for one cluster of a clusterSelector. Its value
// is the name of the install with the clusterSelector. A name that is too long is cut, and followed
// by a hash.
const FleetLabel = "apps.ksctl.com/fleet"

// ReleaseAnnotation is set on each install that is created for one cluster of a clusterSelector.
// Its value is the digest of the artifact that the install may apply.
const ReleaseAnnotation = "apps.ksctl.com/release"

// TurnAnnotation is set on each install that is created for one cluster of a clusterSelector. Its
// value is the number of the turn in which a change was last released to the install, followed by a
// space and the word ahead if the install had its turn before installs that had waited longer.
const TurnAnnotation = "apps.ksctl.com/turn"

// TakenArtifact is an artifact that an install applies.
type TakenArtifact struct {
	// Revision of the source.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Digest of the tarball.
	Digest string `json:"digest"`

	// URL that the artifact was fetched from. Unset if the URL may contain a secret.
	// +optional
	URL string `json:"url,omitempty"`

	// Since is when the rollout of a KsctlKind released the artifact to the object.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// WasReady is true if the object was Ready when the rollout released the artifact to it.
	// +optional
	WasReady bool `json:"wasReady,omitempty"`
}

// InstalledCluster is the state of a stack on one cluster that a clusterSelector selects or has
// selected.
type InstalledCluster struct {
	// Name of the KsctlCluster.
	Name string `json:"name"`

	// Install is the name of the install that is created for the cluster.
	// +optional
	Install string `json:"install,omitempty"`

	// State is Ready, Updating, Failed, Unreachable, Waiting (for its turn in the rollout) or
	// Removing.
	State ClusterState `json:"state"`

	// Since is the time at which the cluster started to apply the change. It is only set while the
	// cluster applies it.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// Revision of the source that is applied to the cluster.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Message explains why the cluster is not ready.
	// +optional
	Message string `json:"message,omitempty"`
}

// ClusterState is the state of an install on one cluster.
// +kubebuilder:validation:Enum=Ready;Updating;Failed;Unreachable;Waiting;Removing
type ClusterState string

// Cluster states.
const (
	ClusterReady       ClusterState = "Ready"
	ClusterUpdating    ClusterState = "Updating"
	ClusterFailed      ClusterState = "Failed"
	ClusterUnreachable ClusterState = "Unreachable"
	ClusterWaiting     ClusterState = "Waiting"
	ClusterRemoving    ClusterState = "Removing"
)

// TargetCluster selects a cluster. Defaults to the cluster that the controller runs in. Everything
// that is read from this cluster, such as values, is read with the permissions of the service
// account. The service account also needs the permission to get the Secret with the kubeconfig. Any
// other cluster is accessed with the permissions of its kubeconfig.
type TargetCluster struct {
	// ClusterRef names a KsctlCluster.
	// +optional
	ClusterRef *ClusterReference `json:"clusterRef,omitempty"`

	// KubeConfig names a Secret with a kubeconfig, instead of a KsctlCluster.
	// +optional
	KubeConfig *KubeConfigReference `json:"kubeConfig,omitempty"`
}
