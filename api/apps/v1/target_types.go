package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterReference names a KsctlCluster.
type ClusterReference struct {
	// Name of the KsctlCluster.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Namespace of the KsctlCluster; that of the object when unset. Another one is refused
	// when the controller runs with --no-cross-namespace-refs.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// SecretKeyReference names a key of a Secret in the namespace of the object.
type SecretKeyReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the Secret that holds the kubeconfig: value when unset, else value.yaml.
	// +optional
	// +kubebuilder:validation:Pattern="^[-._a-zA-Z0-9]+$"
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// KubeConfigReference names a kubeconfig, as Flux does.
type KubeConfigReference struct {
	// SecretRef names a Secret of this namespace with a kubeconfig.
	SecretRef SecretKeyReference `json:"secretRef"`
}

// FailurePolicy says what becomes of a roll-out when a cluster fails.
// +kubebuilder:validation:Enum=Stop;Continue
type FailurePolicy string

// Failure policies.
const (
	// FailureStop takes the change to no further cluster until the failed ones are ready, or
	// there is another change.
	FailureStop FailurePolicy = "Stop"
	// FailureContinue goes on with the others.
	FailureContinue FailurePolicy = "Continue"
)

// DefaultMaxConcurrent is ClusterSelector.MaxConcurrent when unset.
const DefaultMaxConcurrent = 5

// ClusterSelector picks KsctlClusters of the namespace by their labels. An empty one picks all.
type ClusterSelector struct {
	metav1.LabelSelector `json:",inline"`

	// MaxConcurrent is how many clusters take in a change at a time. 5 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// OnFailure says whether a change goes to further clusters when one has failed. Stop when unset.
	// +optional
	OnFailure FailurePolicy `json:"onFailure,omitempty"`
}

// FleetLabel is on each install that was made for a cluster; its value is the name of the
// install with the clusterSelector, or the beginning of it and a hash where that is too long.
const FleetLabel = "apps.ksctl.com/fleet"

// ReleaseAnnotation on an install that was made for a cluster has the digest of the artifact that
// it may take in.
const ReleaseAnnotation = "apps.ksctl.com/release"

// TurnAnnotation on an install that was made for a cluster has the number of the turn in which it
// was last given a change, with "ahead" behind it where others had waited longer.
const TurnAnnotation = "apps.ksctl.com/turn"

// TakenArtifact is an artifact that an install took in.
type TakenArtifact struct {
	// Revision of the source.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Digest of the tarball.
	Digest string `json:"digest"`

	// URL that served it; unset where it could hold a secret.
	// +optional
	URL string `json:"url,omitempty"`
}

// InstalledCluster is how one cluster stands that a clusterSelector picks, or picked.
type InstalledCluster struct {
	// Name of the KsctlCluster.
	Name string `json:"name"`

	// Install that was made for it.
	// +optional
	Install string `json:"install,omitempty"`

	// State is Ready, Updating, Failed, Unreachable, Waiting for its turn, or Removing.
	State ClusterState `json:"state"`

	// Since is when it began to take in a change; set while it does.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// Revision of the source that is applied there.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Message says more where it is not ready.
	// +optional
	Message string `json:"message,omitempty"`
}

// ClusterState is how an install stands on one cluster.
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

// TargetCluster says which cluster is meant: that which the controller runs in when
// neither is set. What is read from this cluster, such as values, is read with the rights of
// the service account, which needs to be allowed to get the Secret with the kubeconfig, too;
// the other cluster is reached with the rights of that kubeconfig.
type TargetCluster struct {
	// ClusterRef names a KsctlCluster.
	// +optional
	ClusterRef *ClusterReference `json:"clusterRef,omitempty"`

	// KubeConfig names a kubeconfig in a Secret instead.
	// +optional
	KubeConfig *KubeConfigReference `json:"kubeConfig,omitempty"`
}
