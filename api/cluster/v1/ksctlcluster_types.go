package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Labels of a KsctlCluster that other objects can use to select clusters.
const (
	CloudLabel        = "cluster.ksctl.com/cloud"
	RegionLabel       = "cluster.ksctl.com/region"
	TypeLabel         = "cluster.ksctl.com/type"
	DistributionLabel = "cluster.ksctl.com/distribution"
)

// ClusterLabel is set on each Secret that is written for a cluster. Its value is the name of the
// KsctlCluster. A name that is too long is cut, and followed by a hash.
const ClusterLabel = "cluster.ksctl.com/cluster"

// ReachableCondition is true if the cluster's API server responds.
const ReachableCondition = "Reachable"

// InUseCondition lists the users that have objects on the cluster: KsctlInstalls, KsctlRemoves and
// KsctlAutoScalers. It is only present while there are users. While it is present, the KsctlCluster
// and its kubeconfig are kept, even if the KsctlCluster is being deleted.
const InUseCondition = "InUse"

// ClusterImport names the ImportState that imported the state of a cluster.
type ClusterImport struct {
	// Name of an ImportState in this namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the cluster in ksctl's store, as <cloud>.<type>.<name>.<region>. It is optional if the
	// ImportState has only one cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// KubeConfigRef names a Secret with a kubeconfig.
type KubeConfigRef struct {
	// Name of a Secret in this namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the Secret that contains the kubeconfig. Defaults to value, or to value.yaml if there
	// is no key value.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`

	// Context of the kubeconfig. Defaults to its current context.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Context string `json:"context,omitempty"`
}

// ArgoCDCluster registers a cluster in Argo CD.
type ArgoCDCluster struct {
	// Namespace of Argo CD. It must be listed in the controller's --argocd-namespaces.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Name of the cluster in Argo CD. Defaults to <namespace>.<name> of this object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Project is the only Argo CD project that may use the cluster. If it is unset, every project
	// may use the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Project string `json:"project,omitempty"`
}

// KsctlClusterSpec specifies how a cluster is reached.
//
// +kubebuilder:validation:XValidation:rule="has(self.importRef) != has(self.kubeConfigRef)",message="set exactly one of importRef and kubeConfigRef"
type KsctlClusterSpec struct {
	// Schedule of the probes. Interval is the time between probes of the cluster. Timeout is the
	// timeout of a probe, at most 10s.
	appsv1.Schedule `json:",inline"`

	// ImportRef uses the kubeconfig and facts of an imported state of the cluster. Both are updated
	// when ksctl changes the state.
	// +optional
	ImportRef *ClusterImport `json:"importRef,omitempty"`

	// KubeConfigRef names a Secret with a kubeconfig, instead of an imported state.
	// +optional
	KubeConfigRef *KubeConfigRef `json:"kubeConfigRef,omitempty"`

	// ArgoCD registers the cluster in Argo CD.
	// +optional
	ArgoCD *ArgoCDCluster `json:"argocd,omitempty"`

	// ServiceAccountName is the service account in this namespace whose permissions are used to
	// read the state and to write the Secrets. Defaults to the controller's
	// --default-service-account.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// PoolRole is the role of the machines of a pool.
// +kubebuilder:validation:Enum=ControlPlane;Worker;Datastore;LoadBalancer
type PoolRole string

// NodePool is a group of machines with the same role.
type NodePool struct {
	// Role of the machines.
	Role PoolRole `json:"role"`

	// Size is the machine size, in the naming of the cloud. Unset if the machines have different
	// sizes.
	// +optional
	Size string `json:"size,omitempty"`

	// Count is the number of machines.
	Count int32 `json:"count"`
}

// ClusterFacts are the facts in the state of a cluster.
type ClusterFacts struct {
	// Name of the cluster in ksctl.
	// +optional
	Name string `json:"name,omitempty"`

	// Cloud of the cluster: aws, azure, civo or local.
	// +optional
	Cloud string `json:"cloud,omitempty"`

	// Region of the cloud.
	// +optional
	Region string `json:"region,omitempty"`

	// Type of the cluster: ha or selfmanaged, or managed.
	// +optional
	Type string `json:"type,omitempty"`

	// Distribution of Kubernetes: k3s or kubeadm, or the distribution of the cloud.
	// +optional
	Distribution string `json:"distribution,omitempty"`

	// Versions that the cluster was created with, by component, such as kubernetes or etcd.
	// +optional
	Versions map[string]string `json:"versions,omitempty"`

	// Pools of machines.
	// +optional
	// +listType=atomic
	Pools []NodePool `json:"pools,omitempty"`
}

// KsctlClusterStatus is the observed state of a cluster.
type KsctlClusterStatus struct {
	appsv1.CommonStatus `json:",inline"`

	// Import is the name of the ImportState that imported the state of the cluster.
	// +optional
	Import string `json:"import,omitempty"`

	// Store is the namespace of ksctl's store that contains the state of the cluster.
	// +optional
	Store string `json:"store,omitempty"`

	// Key of the state in ksctl's store.
	// +optional
	Key string `json:"key,omitempty"`

	// Facts of the cluster's state. Unset if only a kubeconfig is known.
	// +optional
	Facts *ClusterFacts `json:"facts,omitempty"`

	// Server is the address of the cluster's API server.
	// +optional
	Server string `json:"server,omitempty"`

	// KubernetesVersion is the version that the cluster's API server reports.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// Nodes is the number of nodes of the cluster. Unset if the nodes cannot be listed.
	// +optional
	Nodes *int32 `json:"nodes,omitempty"`

	// KubeConfigSecret is the name of the Secret in this namespace with the kubeconfig of the
	// cluster.
	// +optional
	KubeConfigSecret string `json:"kubeConfigSecret,omitempty"`

	// KubeConfigKey is the key of the kubeconfig in kubeConfigSecret.
	// +optional
	KubeConfigKey string `json:"kubeConfigKey,omitempty"`

	// KubeConfigExpires is the expiration time of the client certificate in the kubeconfig.
	// +optional
	KubeConfigExpires *metav1.Time `json:"kubeConfigExpires,omitempty"`

	// ArgoCDSecret is the Secret that registers the cluster in Argo CD, as <namespace>/<name>.
	// +optional
	ArgoCDSecret string `json:"argocdSecret,omitempty"`
}

// KsctlCluster is a cluster that KsctlInstalls, Flux and Argo CD can use as a target.
//
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 242",message="metadata.name must have at most 242 characters: the name of its Secret has the suffix -kubeconfig"
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=kc,categories=all;fluxcd;ksctl
// +kubebuilder:printcolumn:name="Cloud",type=string,JSONPath=".status.facts.cloud"
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=".status.facts.region"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=".status.kubernetesVersion"
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=".status.nodes"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
type KsctlCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KsctlClusterSpec `json:"spec,omitempty"`
	// +kubebuilder:default={observedGeneration:-1}
	Status KsctlClusterStatus `json:"status,omitempty"`
}

// KsctlClusterList is a list of KsctlClusters.
//
// +kubebuilder:object:root=true
type KsctlClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KsctlCluster `json:"items"`
}

// CommonStatus returns the part of the status that every kind has.
func (in *KsctlCluster) CommonStatus() *appsv1.CommonStatus { return &in.Status.CommonStatus }

// Schedule returns the schedule of the spec.
func (in *KsctlCluster) Schedule() *appsv1.Schedule { return &in.Spec.Schedule }
