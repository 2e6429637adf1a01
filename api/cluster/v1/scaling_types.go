package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScalingMode specifies which requests of Cluster Autoscaler are carried out.
// +kubebuilder:validation:Enum=Auto;ScaleUpOnly;Off
type ScalingMode string

// Scaling modes.
const (
	// ScalingAuto creates and deletes machines.
	ScalingAuto ScalingMode = "Auto"
	// ScalingUpOnly creates machines, and does not delete machines.
	ScalingUpOnly ScalingMode = "ScaleUpOnly"
	// ScalingOff does neither. Operations that have started are completed.
	ScalingOff ScalingMode = "Off"
)

// ScaleDownOrder specifies which machines of a cluster may be deleted.
// +kubebuilder:validation:Enum=Tail;Any
type ScaleDownOrder string

// Scale-down orders.
const (
	// TailOrder deletes the worker that was created last first, because ksctl keeps its workers in
	// an array and only deletes its last elements.
	TailOrder ScaleDownOrder = "Tail"
	// AnyOrder deletes workers in any order. It requires an agent that deletes machines by name. No
	// known agent does, so it is refused.
	AnyOrder ScaleDownOrder = "Any"
)

// Expander selects among the pools that fit a pod.
// +kubebuilder:validation:Enum=LeastWaste;Priority;LeastNodes;MostPods;Random
type Expander string

// AutoScaledCluster names the cluster to scale.
type AutoScaledCluster struct {
	// Name of a KsctlCluster in this namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// AutoscalerDeployment configures the deployment of Cluster Autoscaler.
type AutoscalerDeployment struct {
	// Install runs Cluster Autoscaler in this namespace, next to the controller. Defaults to true.
	// If it is false, status.autoscaler.flags contains the flags for a Cluster Autoscaler that you
	// install.
	// +optional
	Install *bool `json:"install,omitempty"`

	// Version of Cluster Autoscaler, such as 1.36.1. Defaults to the version that is tested with
	// the cluster's minor version.
	// +optional
	// +kubebuilder:validation:Pattern="^1\\.(3[4-9]|[4-9][0-9])\\.[0-9]+$"
	Version string `json:"version,omitempty"`

	// Image without its tag. Defaults to registry.k8s.io/autoscaling/cluster-autoscaler.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern="^[a-z0-9][a-z0-9._:/-]*$"
	Image string `json:"image,omitempty"`

	// LogVerbosity of Cluster Autoscaler. At level 4 it logs the reasons for its decisions.
	// Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	LogVerbosity *int32 `json:"logVerbosity,omitempty"`

	// Resources of the Cluster Autoscaler container.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// Bounds are a minimum and a maximum.
//
// +kubebuilder:validation:XValidation:rule="!has(self.max) || !has(self.min) || self.min <= self.max",message="min must not be more than max"
type Bounds struct {
	// Min is the minimum. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Min *int32 `json:"min,omitempty"`

	// Max is the maximum. Defaults to the default of Cluster Autoscaler.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Max *int32 `json:"max,omitempty"`
}

// ScalingLimits limits the size of the whole cluster, including its control plane.
type ScalingLimits struct {
	// MaxNodesTotal is the maximum number of nodes of the cluster. 0 means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxNodesTotal int32 `json:"maxNodesTotal,omitempty"`

	// Cores limits the total number of cores of all nodes.
	// +optional
	Cores *Bounds `json:"cores,omitempty"`

	// MemoryGiB limits the total memory of all nodes, in GiB.
	// +optional
	MemoryGiB *Bounds `json:"memoryGiB,omitempty"`
}

// ScaleDown configures the deletion of machines.
type ScaleDown struct {
	// Order in which machines are deleted. Defaults to Tail. No agent supports Any yet.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self != 'Any'",message="Any is not supported: no agent deletes machines by name; omit the field, or set Tail"
	Order ScaleDownOrder `json:"order,omitempty"`

	// UtilizationThresholdPercent is the utilization below which a node is not needed: the requests
	// of its pods, in percent of the node's resources. Defaults to 50.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	UtilizationThresholdPercent *int32 `json:"utilizationThresholdPercent,omitempty"`

	// UnneededTime is how long a node must be unneeded before it is deleted. Defaults to 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	UnneededTime *metav1.Duration `json:"unneededTime,omitempty"`

	// UnreadyTime is how long a node must be unready before it is deleted. Defaults to 20m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	UnreadyTime *metav1.Duration `json:"unreadyTime,omitempty"`

	// DelayAfterAdd is how long no machine is deleted after a machine was added. Defaults to 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	DelayAfterAdd *metav1.Duration `json:"delayAfterAdd,omitempty"`

	// DelayAfterDelete is how long no machine is deleted after a machine was deleted. Defaults to
	// 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	DelayAfterDelete *metav1.Duration `json:"delayAfterDelete,omitempty"`

	// DelayAfterFailure is how long no machine is deleted after the deletion of a machine failed.
	// Defaults to 3m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	DelayAfterFailure *metav1.Duration `json:"delayAfterFailure,omitempty"`

	// MaxGracefulTermination is the maximum time for evicted pods to terminate. Defaults to 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	MaxGracefulTermination *metav1.Duration `json:"maxGracefulTermination,omitempty"`
}

// ScaleUp configures the creation of machines.
//
// +kubebuilder:validation:XValidation:rule="!has(self.scanInterval) || self.scanInterval.matches('[0-9]{8}|[0-9]{6}h') || duration(self.scanInterval) >= duration('5s')",message="scanInterval must be at least 5s"
// +kubebuilder:validation:XValidation:rule="!has(self.maxNodeProvisionTime) || self.maxNodeProvisionTime.matches('[0-9]{8}|[0-9]{6}h') || duration(self.maxNodeProvisionTime) >= duration('1s')",message="maxNodeProvisionTime must be at least 1s"
type ScaleUp struct {
	// Expanders select among the pools that fit a pod. Each expander selects from the result of the
	// previous one. Random can only be the last one. Defaults to [LeastWaste].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.all(e, self.exists_one(f, f == e))",message="expanders must be unique"
	// +kubebuilder:validation:XValidation:rule="!self.exists(e, e == 'Random') || self[size(self)-1] == 'Random'",message="Random selects one pool, so it must be the last expander"
	Expanders []Expander `json:"expanders,omitempty"`

	// BalanceSimilarPools keeps pools with similar machines at the same size.
	// +optional
	BalanceSimilarPools bool `json:"balanceSimilarPools,omitempty"`

	// NewPodDelay is how long a new pod must be pending before machines are created for it.
	// Defaults to 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	NewPodDelay *metav1.Duration `json:"newPodDelay,omitempty"`

	// MaxNodeProvisionTime is the maximum time for a machine to join the cluster. Defaults to 20m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	MaxNodeProvisionTime *metav1.Duration `json:"maxNodeProvisionTime,omitempty"`

	// MaxNodeStartupTime is the maximum time for a node that has joined to become ready. Defaults
	// to 15m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	MaxNodeStartupTime *metav1.Duration `json:"maxNodeStartupTime,omitempty"`

	// EnforceMinSize scales a pool up to its minSize even if no pod needs it. Defaults to true.
	// +optional
	EnforceMinSize *bool `json:"enforceMinSize,omitempty"`

	// ScanInterval is the time between evaluations of the cluster by Cluster Autoscaler. Defaults
	// to 10s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]{1,7}(\\.[0-9]{1,9})?(ms|s|m)|[0-9]{1,5}(\\.[0-9]{1,9})?h){1,6}$"
	ScanInterval *metav1.Duration `json:"scanInterval,omitempty"`
}

// PodRules specifies which pods prevent the deletion of their node.
type PodRules struct {
	// SkipNodesWithLocalStorage keeps nodes with pods that use an emptyDir or hostPath volume.
	// Defaults to true.
	// +optional
	SkipNodesWithLocalStorage *bool `json:"skipNodesWithLocalStorage,omitempty"`

	// SkipNodesWithSystemPods keeps nodes with pods in kube-system that do not belong to a
	// DaemonSet. Defaults to true.
	// +optional
	SkipNodesWithSystemPods *bool `json:"skipNodesWithSystemPods,omitempty"`

	// SkipNodesWithCustomControllerPods keeps nodes with pods of controllers that are not part of
	// Kubernetes. Defaults to true.
	// +optional
	SkipNodesWithCustomControllerPods *bool `json:"skipNodesWithCustomControllerPods,omitempty"`

	// IgnoreDaemonSetsUtilization excludes pods of DaemonSets from the utilization of a node.
	// +optional
	IgnoreDaemonSetsUtilization bool `json:"ignoreDaemonSetsUtilization,omitempty"`

	// PriorityCutoff is the priority below which pods neither cause the creation of machines nor
	// prevent their deletion. Defaults to -10.
	// +optional
	PriorityCutoff *int32 `json:"priorityCutoff,omitempty"`
}
