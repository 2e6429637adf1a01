package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScalingMode says what is done with what Cluster Autoscaler asks for.
// +kubebuilder:validation:Enum=Auto;ScaleUpOnly;Off
type ScalingMode string

// Scaling modes.
const (
	// ScalingAuto makes machines and deletes them.
	ScalingAuto ScalingMode = "Auto"
	// ScalingUpOnly makes machines, and deletes none.
	ScalingUpOnly ScalingMode = "ScaleUpOnly"
	// ScalingOff does neither. What has begun is brought to its end.
	ScalingOff ScalingMode = "Off"
)

// ScaleDownOrder says which machine of a cluster may go.
// +kubebuilder:validation:Enum=Tail;Any
type ScaleDownOrder string

// Orders.
const (
	// TailOrder lets the worker that was made last go first, as ksctl keeps its workers in an
	// array and deletes the end of it.
	TailOrder ScaleDownOrder = "Tail"
	// AnyOrder lets each of them go. It needs an agent that deletes by name, and none that is
	// known here does: it is refused.
	AnyOrder ScaleDownOrder = "Any"
)

// Expander chooses among the pools that a pod would fit in.
// +kubebuilder:validation:Enum=LeastWaste;Priority;LeastNodes;MostPods;Random
type Expander string

// AutoScaledCluster names the cluster.
type AutoScaledCluster struct {
	// Name of a KsctlCluster in this namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// AutoscalerDeployment says how Cluster Autoscaler itself runs.
type AutoscalerDeployment struct {
	// Install Cluster Autoscaler beside the controller. True when unset; with false
	// status.autoscaler.flags has the flags for one of your own.
	// +optional
	Install *bool `json:"install,omitempty"`

	// Version of Cluster Autoscaler, such as 1.36.1. The one that was tried with the
	// cluster's minor version when unset.
	// +optional
	// +kubebuilder:validation:Pattern="^1\\.(3[4-9]|[4-9][0-9])\\.[0-9]+$"
	Version string `json:"version,omitempty"`

	// Image without its tag. registry.k8s.io/autoscaling/cluster-autoscaler when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern="^[a-z0-9][a-z0-9._:/-]*$"
	Image string `json:"image,omitempty"`

	// LogVerbosity of Cluster Autoscaler: 4 says why it does what. 1 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	LogVerbosity *int32 `json:"logVerbosity,omitempty"`

	// Resources of its container.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// Bounds are a least and a most.
//
// +kubebuilder:validation:XValidation:rule="!has(self.max) || !has(self.min) || self.min <= self.max",message="min must not be more than max"
type Bounds struct {
	// Min is the least. 0 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Min *int32 `json:"min,omitempty"`

	// Max is the most. Cluster Autoscaler's own when unset.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Max *int32 `json:"max,omitempty"`
}

// ScalingLimits hold for the whole cluster, its control plane included.
type ScalingLimits struct {
	// MaxNodesTotal is the most nodes that the cluster may have. 0 is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxNodesTotal int32 `json:"maxNodesTotal,omitempty"`

	// Cores of all nodes together.
	// +optional
	Cores *Bounds `json:"cores,omitempty"`

	// MemoryGiB of all nodes together.
	// +optional
	MemoryGiB *Bounds `json:"memoryGiB,omitempty"`
}

// ScaleDown says when machines go.
type ScaleDown struct {
	// Order in which machines go. Tail when unset.
	// +optional
	Order ScaleDownOrder `json:"order,omitempty"`

	// UtilizationThresholdPercent below which a node is not needed: what its pods request
	// of what it has. 50 when unset.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	UtilizationThresholdPercent *int32 `json:"utilizationThresholdPercent,omitempty"`

	// UnneededTime is how long a node is not needed before it goes. 10m when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	UnneededTime *metav1.Duration `json:"unneededTime,omitempty"`

	// UnreadyTime is how long a node is not ready before it goes. 20m when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	UnreadyTime *metav1.Duration `json:"unreadyTime,omitempty"`

	// DelayAfterAdd is how long nothing goes after a machine has come. 10m when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	DelayAfterAdd *metav1.Duration `json:"delayAfterAdd,omitempty"`

	// DelayAfterDelete is how long nothing goes after a machine has gone. 0s when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	DelayAfterDelete *metav1.Duration `json:"delayAfterDelete,omitempty"`

	// DelayAfterFailure is how long nothing goes after a machine could not be deleted. 3m
	// when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	DelayAfterFailure *metav1.Duration `json:"delayAfterFailure,omitempty"`

	// MaxGracefulTermination is how long pods that are evicted may take to end. 10m when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	MaxGracefulTermination *metav1.Duration `json:"maxGracefulTermination,omitempty"`
}

// ScaleUp says when machines come.
//
// +kubebuilder:validation:XValidation:rule="!has(self.scanInterval) || duration(self.scanInterval) >= duration('5s')",message="scanInterval must be at least 5s"
// +kubebuilder:validation:XValidation:rule="!has(self.maxNodeProvisionTime) || duration(self.maxNodeProvisionTime) >= duration('1s')",message="maxNodeProvisionTime must be at least 1s"
type ScaleUp struct {
	// Expanders choose among the pools that a pod would fit in, one after the other. Random
	// is the last one. [LeastWaste] when unset.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.all(e, self.exists_one(f, f == e))",message="each expander may be named once"
	// +kubebuilder:validation:XValidation:rule="!self.exists(e, e == 'Random') || self[size(self)-1] == 'Random'",message="Random chooses one pool, so it can only be the last expander"
	Expanders []Expander `json:"expanders,omitempty"`

	// BalanceSimilarPools keeps pools whose machines are alike at the same size.
	// +optional
	BalanceSimilarPools bool `json:"balanceSimilarPools,omitempty"`

	// NewPodDelay is how long a new pod may be pending before machines are made for it. 0s
	// when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	NewPodDelay *metav1.Duration `json:"newPodDelay,omitempty"`

	// MaxNodeProvisionTime is how long a machine may take to join the cluster. 20m when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	MaxNodeProvisionTime *metav1.Duration `json:"maxNodeProvisionTime,omitempty"`

	// MaxNodeStartupTime is how long a node that has joined may take to be ready. 15m when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	MaxNodeStartupTime *metav1.Duration `json:"maxNodeStartupTime,omitempty"`

	// EnforceMinSize brings a pool to its minSize also when no pod asks for it. True when unset.
	// +optional
	EnforceMinSize *bool `json:"enforceMinSize,omitempty"`

	// ScanInterval is how often Cluster Autoscaler looks. 10s when unset.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	ScanInterval *metav1.Duration `json:"scanInterval,omitempty"`
}

// PodRules say which pods keep a node.
type PodRules struct {
	// SkipNodesWithLocalStorage keeps nodes with pods that have an emptyDir or a hostPath.
	// True when unset.
	// +optional
	SkipNodesWithLocalStorage *bool `json:"skipNodesWithLocalStorage,omitempty"`

	// SkipNodesWithSystemPods keeps nodes with pods of kube-system that no DaemonSet has.
	// True when unset.
	// +optional
	SkipNodesWithSystemPods *bool `json:"skipNodesWithSystemPods,omitempty"`

	// SkipNodesWithCustomControllerPods keeps nodes with pods of controllers that are not
	// Kubernetes' own. True when unset.
	// +optional
	SkipNodesWithCustomControllerPods *bool `json:"skipNodesWithCustomControllerPods,omitempty"`

	// IgnoreDaemonSetsUtilization leaves pods of DaemonSets out of what a node is used for.
	// +optional
	IgnoreDaemonSetsUtilization bool `json:"ignoreDaemonSetsUtilization,omitempty"`

	// PriorityCutoff: pods below this priority neither make machines nor keep them. -10
	// when unset.
	// +optional
	PriorityCutoff *int32 `json:"priorityCutoff,omitempty"`
}
