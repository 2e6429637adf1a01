package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// PoolLabel is set on the nodes of a pool. Its value is the name of the pool.
const PoolLabel = "cluster.ksctl.com/pool"

// KsctlAutoScalerSpec specifies how the workers of a cluster scale. It is owned by the repository
// that it is applied from: no controller writes it.
//
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.limits.maxNodesTotal) || self.limits.maxNodesTotal == 0 || self.pools.map(p, p.minSize).sum() <= self.limits.maxNodesTotal",message="the sum of the pools' minSize must not be more than limits.maxNodesTotal"
type KsctlAutoScalerSpec struct {
	appsv1.Schedule `json:",inline"`

	// ClusterRef names the cluster. A cluster can have only one KsctlAutoScaler.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterRef is immutable: create another KsctlAutoScaler"
	ClusterRef AutoScaledCluster `json:"clusterRef"`

	// Mode is Auto (machines are created and deleted), ScaleUpOnly (machines are only created) or
	// Off (neither). Defaults to Auto.
	// +optional
	Mode ScalingMode `json:"mode,omitempty"`

	// Agent is the endpoint of the agent that creates and deletes the machines.
	Agent appsv1.AgentEndpoint `json:"agent"`

	// Autoscaler configures the deployment of Cluster Autoscaler.
	// +optional
	Autoscaler *AutoscalerDeployment `json:"autoscaler,omitempty"`

	// Limits limits the size of the whole cluster.
	// +optional
	Limits *ScalingLimits `json:"limits,omitempty"`

	// ScaleDown configures the deletion of machines.
	// +optional
	ScaleDown *ScaleDown `json:"scaleDown,omitempty"`

	// ScaleUp configures the creation of machines.
	// +optional
	ScaleUp *ScaleUp `json:"scaleUp,omitempty"`

	// Pods specifies which pods prevent the deletion of their node.
	// +optional
	Pods *PodRules `json:"pods,omitempty"`

	// Pools are the pools of workers. Each pool has one machine size.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.nodeSize == p.nodeSize))",message="nodeSize must be unique: it distinguishes the workers of different pools"
	Pools []WorkerPool `json:"pools"`

	// ServiceAccountName is the service account in this namespace whose permissions are used to
	// read the Secrets of the cluster and of the agent, and to install Cluster Autoscaler. Defaults
	// to the controller's --default-service-account.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// Condition types of a KsctlAutoScaler, in addition to Ready.
const (
	// AcceptedCondition is false if another KsctlAutoScaler already scales the cluster.
	AcceptedCondition = "Accepted"
	// StateImportedCondition is true if the cluster has an imported state, and false if it only has
	// a kubeconfig.
	StateImportedCondition = "StateImported"
	// ProviderServingCondition is true if requests of Cluster Autoscaler are served.
	ProviderServingCondition = "ProviderServing"
	// AutoscalerAvailableCondition is true if Cluster Autoscaler runs.
	AutoscalerAvailableCondition = "AutoscalerAvailable"
	// AutoscalerHealthyCondition is the health that Cluster Autoscaler reports.
	AutoscalerHealthyCondition = "AutoscalerHealthy"
	// ProgressingCondition is true while machines are created or deleted.
	ProgressingCondition = "Progressing"
	// DegradedCondition is true while a pool cannot reach its target size.
	DegradedCondition = "Degraded"
)

// KsctlAutoScaler scales the workers of a cluster, with Cluster Autoscaler and ksctl's agent.
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

// Schedule returns the schedule of the spec.
func (in *KsctlAutoScaler) Schedule() *appsv1.Schedule { return &in.Spec.Schedule }
