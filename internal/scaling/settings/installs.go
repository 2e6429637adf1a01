package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// Label is on the installs that a KsctlAutoScaler has, and on what they install in its namespace.
// Its value is the name of the Deployment.
const Label = "cluster.ksctl.com/autoscaler"

// Suffixes of names.
const (
	deploymentSuffix = "-autoscaler"
	prioritiesSuffix = "-autoscaler-priorities"
	secretSuffix     = "-autoscaler-tls"
)

// maxName is the longest name that is made: it is a label's value, and the beginning of a Pod's name.
const maxName = 63

// DeploymentName is that of Cluster Autoscaler, in the namespace of the KsctlAutoScaler. The
// install that brings it has the same name.
func DeploymentName(autoscaler string) string { return bounded(autoscaler, deploymentSuffix) }

// PrioritiesName is that of the install that brings the priorities to the cluster.
func PrioritiesName(autoscaler string) string { return bounded(autoscaler, prioritiesSuffix) }

// ClientSecretName is that of the Secret by which Cluster Autoscaler says who it is.
func ClientSecretName(autoscaler string) string { return bounded(autoscaler, secretSuffix) }

// bounded is a DNS label: the name, or what is left of it and a hash, and the suffix.
func bounded(name, suffix string) string {
	if len(name)+len(suffix) <= maxName && !strings.Contains(name, ".") {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(name))
	tail := "-" + hex.EncodeToString(sum[:5]) + suffix
	short := strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(short[:min(len(short), maxName-len(tail))], "-") + tail
}

// Installs bring Cluster Autoscaler to the namespace of the KsctlAutoScaler, unless it is installed
// otherwise, and the priorities of its pools to the cluster, where these are asked for. They
// belong to the KsctlAutoScaler, and go with it.
func Installs(as *clusterv1.KsctlAutoScaler, in Inputs) ([]*appsv1.KsctlInstall, error) {
	var out []*appsv1.KsctlInstall
	if Installed(&as.Spec) {
		chosen, err := choice(autoscalerComponent, map[string]any{"values": deployment(as, in)})
		if err != nil {
			return nil, err
		}
		out = append(out, install(as, DeploymentName(as.Name), chosen, prioritiesComponent))
	}
	if usesPriorities(&as.Spec) {
		chosen, err := choice(prioritiesComponent, map[string]any{"priorities": Priorities(Groups(as))})
		if err != nil {
			return nil, err
		}
		there := install(as, PrioritiesName(as.Name), chosen, autoscalerComponent)
		there.Spec.ClusterRef = &appsv1.ClusterReference{Name: as.Spec.ClusterRef.Name}
		out = append(out, there)
	}
	return out, nil
}

// deployment is what the chart of the stack is told.
func deployment(as *clusterv1.KsctlAutoScaler, in Inputs) map[string]any {
	replicas := 1
	if as.Spec.Mode == clusterv1.ScalingOff {
		replicas = 0
	}
	out := map[string]any{
		"name": DeploymentName(as.Name), "replicas": replicas, "args": Flags(&as.Spec, in),
		"image":       map[string]any{"repository": image(&as.Spec), "tag": "v" + in.Version},
		"cloudConfig": CloudConfig(in.Address, TLSFolder, CallTimeout),
		"kubeconfig":  map[string]any{"secret": in.KubeConfigSecret, "key": in.KubeConfigKey},
		"tls":         map[string]any{"secret": in.ClientSecret},
		"configHash":  Hash(&as.Spec, in),
	}
	if a := as.Spec.Autoscaler; a != nil && a.Resources != nil {
		out["resources"] = a.Resources
	}
	return out
}

func choice(component string, override map[string]any) (appsv1.ComponentChoice, error) {
	raw, err := json.Marshal(override)
	return appsv1.ComponentChoice{Name: component, Override: &apiextensionsv1.JSON{Raw: raw}}, err
}

// install of one component of the stack, without the other one.
func install(as *clusterv1.KsctlAutoScaler, name string, chosen appsv1.ComponentChoice, other string) *appsv1.KsctlInstall {
	out := &appsv1.KsctlInstall{}
	out.Namespace, out.Name = as.Namespace, name
	out.Labels = map[string]string{Label: DeploymentName(as.Name)}
	out.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "KsctlAutoScaler", Name: as.Name, UID: as.UID, Controller: ptr.To(true)}}
	as.Spec.Schedule.DeepCopyInto(&out.Spec.Schedule)
	out.Spec.Suspend = false
	out.Spec.SourceRef = appsv1.SourceRef{Kind: appsv1.CatalogKind}
	out.Spec.Stack, out.Spec.StackVersion = Stack, StackVersion
	out.Spec.ServiceAccountName = as.Spec.ServiceAccountName
	out.Spec.Components = []appsv1.ComponentChoice{chosen, {Name: other, Enabled: ptr.To(false)}}
	return out
}
