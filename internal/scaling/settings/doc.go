// Package settings computes how Cluster Autoscaler runs for a KsctlAutoScaler: its version, its
// flags and files, and the KsctlInstalls from the catalog that deploy it. Its functions depend only
// on the spec and on Inputs; they make no API requests.
package settings

import (
	"time"

	"k8s.io/utils/ptr"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// The stack of the catalog that contains Cluster Autoscaler, its version and its components.
const (
	StackName    = "cluster-autoscaler"
	StackVersion = "1.0.0"

	autoscalerComponent = "autoscaler"
	prioritiesComponent = "priorities"
)

// Paths of Cluster Autoscaler's files in its container. The stack mounts the files there. A Cluster
// Autoscaler that is deployed by other means needs the files at the same paths, or other flags.
const (
	// CloudConfigFile is the configuration of the provider externalgrpc.
	CloudConfigFile = "/etc/cluster-autoscaler/config/cloud-config.yaml"
	// KubeConfigFile is the kubeconfig of the scaled cluster.
	KubeConfigFile = "/etc/cluster-autoscaler/kubeconfig/kubeconfig"
	// TLSDir contains ca.crt, tls.crt and tls.key for the connection to the node group server.
	TLSDir = "/etc/cluster-autoscaler/tls"
)

// Objects of Cluster Autoscaler in the scaled cluster.
const (
	// Namespace contains the lease and the ConfigMaps of Cluster Autoscaler.
	Namespace = "kube-system"
	// LeaseName is the same for every Cluster Autoscaler that this project deploys, so that two of
	// them never scale one cluster.
	LeaseName = "ksctl-cluster-autoscaler"
	// StatusConfigMap is the ConfigMap to which Cluster Autoscaler writes its status.
	StatusConfigMap = "cluster-autoscaler-status"
)

// callTimeout is how long Cluster Autoscaler waits for a response of the node group server.
const callTimeout = 10 * time.Second

// DefaultImage is the default image repository of Cluster Autoscaler.
const DefaultImage = "registry.k8s.io/autoscaling/cluster-autoscaler"

// Inputs are the facts beside the spec from which the settings are computed. They contain no
// secrets.
type Inputs struct {
	// Version is the version of Cluster Autoscaler, as Version returns it.
	Version string
	// Address is the address of the node group server: <host>:<port>. The server's certificate must
	// be valid for the host.
	Address string
	// KubeConfigSecret is a Secret in the namespace of the KsctlAutoScaler. It holds the kubeconfig
	// at KubeConfigKey; both come from the status of the KsctlCluster. KubeConfigRevision changes
	// whenever the kubeconfig changes.
	KubeConfigSecret, KubeConfigKey, KubeConfigRevision string
	// ClientSecret is the Secret in that namespace with the client certificate: ca.crt, tls.crt and
	// tls.key. Certificates are its ca.crt and tls.crt.
	ClientSecret string
	Certificates [2][]byte
}

// deployment returns spec.autoscaler; an empty value if it is not set.
func deployment(spec *clusterv1.KsctlAutoScalerSpec) clusterv1.AutoscalerDeployment {
	return ptr.Deref(spec.Autoscaler, clusterv1.AutoscalerDeployment{})
}

// InstallRequested reports whether the controller installs Cluster Autoscaler in its own cluster.
// That is the default.
func InstallRequested(spec *clusterv1.KsctlAutoScalerSpec) bool {
	return ptr.Deref(deployment(spec).Install, true)
}
