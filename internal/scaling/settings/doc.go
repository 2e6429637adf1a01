// Package settings says how Cluster Autoscaler is to run for a KsctlAutoScaler: which version,
// with which flags and files, and which installs of the catalogue bring it. It is a function of
// the spec and of what it is told: it asks no API server.
package settings

import (
	"time"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// Stack of the catalogue that has Cluster Autoscaler, its version and its components.
const (
	Stack        = "cluster-autoscaler"
	StackVersion = "1.0.0"

	autoscalerComponent = "autoscaler"
	prioritiesComponent = "priorities"
)

// Where Cluster Autoscaler finds its files. The stack mounts them there; one that is installed
// otherwise has to have them at the same places, or other flags.
const (
	// CloudConfigFile is the configuration of the provider externalgrpc.
	CloudConfigFile = "/etc/cluster-autoscaler/config/cloud-config.yaml"
	// KubeConfigFile is the kubeconfig of the cluster that is scaled.
	KubeConfigFile = "/etc/cluster-autoscaler/kubeconfig/kubeconfig"
	// TLSFolder has ca.crt, tls.crt and tls.key, for the node group server.
	TLSFolder = "/etc/cluster-autoscaler/tls"
)

// In the cluster that is scaled.
const (
	// Namespace has what Cluster Autoscaler keeps there: its lease and its ConfigMaps.
	Namespace = "kube-system"
	// LeaseName is the same for all of ours, so that two of them never scale one cluster.
	LeaseName = "ksctl-cluster-autoscaler"
	// StatusConfigMap is where it says how it is.
	StatusConfigMap = "cluster-autoscaler-status"
)

// CallTimeout is how long Cluster Autoscaler waits for an answer of the node group server.
const CallTimeout = 10 * time.Second

// DefaultImage of Cluster Autoscaler.
const DefaultImage = "registry.k8s.io/autoscaling/cluster-autoscaler"

// Inputs are what the settings follow from, beside the spec. They have no secrets.
type Inputs struct {
	// Version of Cluster Autoscaler, as Version returns it.
	Version string
	// Address of the node group server: <host>:<port>. Its certificate has to be for the host.
	Address string
	// KubeConfigSecret in the namespace of the KsctlAutoScaler has the kubeconfig at KubeConfigKey,
	// as the status of the KsctlCluster says. KubeConfigRevision is another one whenever the
	// kubeconfig is.
	KubeConfigSecret, KubeConfigKey, KubeConfigRevision string
	// ClientSecret in that namespace has who the autoscaler is: ca.crt, tls.crt and tls.key.
	// Certificates are the first two of them.
	ClientSecret string
	Certificates [2][]byte
}

// usesPriorities is true where the priorities of pools are asked for.
func usesPriorities(spec *clusterv1.KsctlAutoScalerSpec) bool {
	for _, e := range expanders(spec) {
		if e == priority {
			return true
		}
	}
	return false
}

// Installed is true where Cluster Autoscaler is installed beside the controller.
func Installed(spec *clusterv1.KsctlAutoScalerSpec) bool {
	return spec.Autoscaler == nil || spec.Autoscaler.Install == nil || *spec.Autoscaler.Install
}
