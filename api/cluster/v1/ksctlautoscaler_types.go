package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// PoolLabel is on the nodes of a pool; its value is the pool's name.
const PoolLabel = "cluster.ksctl.com/pool"

// KsctlAutoScalerSpec says how the workers of a cluster scale. It belongs to the repository:
// no controller writes it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.limits.maxNodesTotal) || self.limits.maxNodesTotal == 0 || self.pools.map(p, p.minSize).sum() <= self.limits.maxNodesTotal",message="the pools' minSize together are more than limits.maxNodesTotal"
type KsctlAutoScalerSpec struct {
	appsv1.Schedule `json:",inline"`

	// ClusterRef names the cluster. One KsctlAutoScaler may have it.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterRef can't be changed: make another KsctlAutoScaler"
	ClusterRef AutoScaledCluster `json:"clusterRef"`

	// Mode: Auto makes and deletes machines, ScaleUpOnly makes them alone, Off does neither.
	// Auto when unset.
	// +optional
	Mode ScalingMode `json:"mode,omitempty"`

	// Agent makes and deletes the machines.
	Agent appsv1.AgentEndpoint `json:"agent"`

	// Autoscaler says how Cluster Autoscaler itself runs.
	// +optional
	Autoscaler *AutoscalerDeployment `json:"autoscaler,omitempty"`

	// Limits of the whole cluster.
	// +optional
	Limits *ScalingLimits `json:"limits,omitempty"`

	// ScaleDown says when machines go.
	// +optional
	ScaleDown *ScaleDown `json:"scaleDown,omitempty"`

	// ScaleUp says when machines come.
	// +optional
	ScaleUp *ScaleUp `json:"scaleUp,omitempty"`

	// Pods say which pods keep a node.
	// +optional
	Pods *PodRules `json:"pods,omitempty"`

	// Pools of workers, each of one machine size.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.nodeSize == p.nodeSize))",message="each nodeSize may be that of one pool: the size tells the workers of pools apart"
	Pools []WorkerPool `json:"pools"`

	// ServiceAccountName is the account in this namespace whose rights are used to read the
	// Secrets of the cluster and of the agent, and to install Cluster Autoscaler. The
	// controller's --default-service-account when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// Conditions of a KsctlAutoScaler, beside Ready.
const (
	// AcceptedCondition is false for a second one of the same cluster.
	AcceptedCondition = "Accepted"
	// StateImportedCondition says whether the cluster is known by its state, or by a kubeconfig alone.
	StateImportedCondition = "StateImported"
	// ProviderServingCondition says whether Cluster Autoscaler is answered.
	ProviderServingCondition = "ProviderServing"
	// AutoscalerAvailableCondition says whether Cluster Autoscaler runs.
	AutoscalerAvailableCondition = "AutoscalerAvailable"
	// AutoscalerHealthyCondition is what Cluster Autoscaler says of itself.
	AutoscalerHealthyCondition = "AutoscalerHealthy"
	// ProgressingCondition is true while machines are made or deleted.
	ProgressingCondition = "Progressing"
	// DegradedCondition is true while a pool could not be brought to its target.
	DegradedCondition = "Degraded"
)

// KsctlAutoScaler has the workers of a cluster scale, by Cluster Autoscaler and ksctl's agent.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kas,categories=all;fluxcd;ksctl
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=".spec.clusterRef.name"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=".spec.mode"
// +kubebuilder:printcolumn:name="Workers",type=integer,JSONPath=".status.workers"
// +kubebuilder:printcolumn:name="Operation",type=string,JSONPath=".status.operation.state"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
type KsctlAutoScaler struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KsctlAutoScalerSpec `json:"spec,omitempty"`
	// +kubebuilder:default={observedGeneration:-1}
	Status KsctlAutoScalerStatus `json:"status,omitempty"`
}

// KsctlAutoScalerList is a list of KsctlAutoScalers.
//
// +kubebuilder:object:root=true
type KsctlAutoScalerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KsctlAutoScaler `json:"items"`
}

// CommonStatus returns the part of the status that every kind has.
func (in *KsctlAutoScaler) CommonStatus() *appsv1.CommonStatus { return &in.Status.CommonStatus }

// Schedule says when the object is looked at again.
func (in *KsctlAutoScaler) Schedule() *appsv1.Schedule { return &in.Spec.Schedule }
