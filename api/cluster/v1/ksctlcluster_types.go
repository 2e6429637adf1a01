package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Labels of a KsctlCluster, with which others select clusters.
const (
	CloudLabel        = "cluster.ksctl.com/cloud"
	RegionLabel       = "cluster.ksctl.com/region"
	TypeLabel         = "cluster.ksctl.com/type"
	DistributionLabel = "cluster.ksctl.com/distribution"
)

// ClusterLabel is on each Secret that is written for a cluster; its value is the name of the
// KsctlCluster, or the beginning of it and a hash where that is too long.
const ClusterLabel = "cluster.ksctl.com/cluster"

// ReachableCondition says whether the cluster's API server answers.
const ReachableCondition = "Reachable"

// InUseCondition names who has objects on the cluster. It is there only while somebody has:
// so long the KsctlCluster stays, and keeps its kubeconfig, also when it is deleted.
const InUseCondition = "InUse"

// ClusterImport names the import that brought the state of a cluster.
type ClusterImport struct {
	// Name of an ImportState in this namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the cluster in ksctl's store: <cloud>.<type>.<name>.<region>. It may be left
	// out where the import has one cluster alone.
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

	// Key of the Secret that holds the kubeconfig: value when unset, else value.yaml.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`

	// Context of the kubeconfig; its current one when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Context string `json:"context,omitempty"`
}

// ArgoCDCluster says how Argo CD knows the cluster.
type ArgoCDCluster struct {
	// Namespace of Argo CD. The controller's --argocd-namespaces must list it.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Name of the cluster in Argo CD. <namespace>.<name> of this object when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Project of Argo CD that alone may use the cluster. Every project may when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Project string `json:"project,omitempty"`
}

// KsctlClusterSpec says how a cluster is reached.
//
// +kubebuilder:validation:XValidation:rule="has(self.importRef) != has(self.kubeConfigRef)",message="set exactly one of importRef and kubeConfigRef: how the cluster is reached"
type KsctlClusterSpec struct {
	// Interval is how often the cluster is asked whether it answers, and Timeout how long
	// its answer may take, up to 10s of it.
	appsv1.Schedule `json:",inline"`

	// ImportRef takes the kubeconfig, and what is known of the cluster, from its imported
	// state. When ksctl changes that, both follow.
	// +optional
	ImportRef *ClusterImport `json:"importRef,omitempty"`

	// KubeConfigRef names a kubeconfig instead.
	// +optional
	KubeConfigRef *KubeConfigRef `json:"kubeConfigRef,omitempty"`

	// ArgoCD has Argo CD know the cluster, too.
	// +optional
	ArgoCD *ArgoCDCluster `json:"argocd,omitempty"`

	// ServiceAccountName is the account in this namespace whose rights are used to read
	// the state and to write the Secrets. The controller's --default-service-account when
	// unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// PoolRole is what the machines of a pool are for.
// +kubebuilder:validation:Enum=ControlPlane;Worker;Datastore;LoadBalancer
type PoolRole string

// NodePool is the machines of a role.
type NodePool struct {
	// Role of the machines.
	Role PoolRole `json:"role"`

	// Size of the machines in the cloud's words, if they are all of one.
	// +optional
	Size string `json:"size,omitempty"`

	// Count of the machines.
	Count int32 `json:"count"`
}

// ClusterFacts are what the state of a cluster says.
type ClusterFacts struct {
	// Name that ksctl knows the cluster by.
	// +optional
	Name string `json:"name,omitempty"`

	// Cloud that it is in: aws, azure, civo or local.
	// +optional
	Cloud string `json:"cloud,omitempty"`

	// Region of the cloud.
	// +optional
	Region string `json:"region,omitempty"`

	// Type of the cluster: ha or selfmanaged, or managed.
	// +optional
	Type string `json:"type,omitempty"`

	// Distribution of Kubernetes: k3s or kubeadm, or the cloud's own.
	// +optional
	Distribution string `json:"distribution,omitempty"`

	// Versions that it was made with, by what they are of.
	// +optional
	Versions map[string]string `json:"versions,omitempty"`

	// Pools of machines.
	// +optional
	// +listType=atomic
	Pools []NodePool `json:"pools,omitempty"`
}

// KsctlClusterStatus is what was seen of a cluster.
type KsctlClusterStatus struct {
	appsv1.CommonStatus `json:",inline"`

	// Import that brought the state that it was taken from.
	// +optional
	Import string `json:"import,omitempty"`

	// Store is the namespace of ksctl's store that has the state, and Key the key there.
	// +optional
	Store string `json:"store,omitempty"`

	// Key of the state in ksctl's store.
	// +optional
	Key string `json:"key,omitempty"`

	// Facts of its state; none where a kubeconfig alone is known.
	// +optional
	Facts *ClusterFacts `json:"facts,omitempty"`

	// Server is the address of its API server.
	// +optional
	Server string `json:"server,omitempty"`

	// KubernetesVersion that its API server says it has.
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// Nodes that it has, if it may be asked.
	// +optional
	Nodes *int32 `json:"nodes,omitempty"`

	// KubeConfigSecret is the Secret in this namespace with its kubeconfig.
	// +optional
	KubeConfigSecret string `json:"kubeConfigSecret,omitempty"`

	// KubeConfigKey is the key of that Secret.
	// +optional
	KubeConfigKey string `json:"kubeConfigKey,omitempty"`

	// KubeConfigExpires is when the certificate in it does.
	// +optional
	KubeConfigExpires *metav1.Time `json:"kubeConfigExpires,omitempty"`

	// ArgoCDSecret is the Secret that Argo CD knows the cluster by: <namespace>/<name>.
	// +optional
	ArgoCDSecret string `json:"argocdSecret,omitempty"`
}

// KsctlCluster is a cluster that installs, Flux and Argo CD can reach.
//
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 242",message="the name may have at most 242 characters: that of its Secret ends in -kubeconfig"
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

// Schedule says when the object is looked at again.
func (in *KsctlCluster) Schedule() *appsv1.Schedule { return &in.Spec.Schedule }
