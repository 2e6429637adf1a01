package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// Label marks the installs of a KsctlAutoScaler and the objects that they install in its namespace.
// Its value is the name of the Deployment.
const Label = "cluster.ksctl.com/autoscaler"

// Suffixes of generated names.
const (
	deploymentSuffix = "-autoscaler"
	prioritiesSuffix = "-autoscaler-priorities"
	secretSuffix     = "-autoscaler-tls"
)

// maxNameLength bounds generated names: they are label values and prefixes of Pod names.
const maxNameLength = 63

// DeploymentName returns the name of Cluster Autoscaler's Deployment, in the namespace of the
// KsctlAutoScaler. The install that deploys it has the same name.
func DeploymentName(autoscaler string) string { return boundedName(autoscaler, deploymentSuffix) }

// PrioritiesName returns the name of the install that deploys the priorities to the scaled cluster.
func PrioritiesName(autoscaler string) string { return boundedName(autoscaler, prioritiesSuffix) }

// ClientSecretName returns the name of the Secret with Cluster Autoscaler's client certificate.
func ClientSecretName(autoscaler string) string { return boundedName(autoscaler, secretSuffix) }

// boundedName returns the name and the suffix as a DNS label. It shortens a name that is too long
// or contains dots and adds a hash of it.
func boundedName(name, suffix string) string {
	if len(name)+len(suffix) <= maxNameLength && !strings.Contains(name, ".") {
		return name + suffix
	}
	sum := sha256.Sum256([]byte(name))
	hashSuffix := "-" + hex.EncodeToString(sum[:5]) + suffix
	short := strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(short[:min(len(short), maxNameLength-len(hashSuffix))], "-") + hashSuffix
}

// DesiredInstalls returns the installs of a KsctlAutoScaler: one deploys Cluster Autoscaler in its
// namespace, if spec.autoscaler.install is not false; one deploys the priorities of its pools to
// the scaled cluster, if the Priority expander is used. The KsctlAutoScaler is their controller
// owner, so they are deleted with it.
func DesiredInstalls(as *clusterv1.KsctlAutoScaler, in Inputs) ([]*appsv1.KsctlInstall, error) {
	var out []*appsv1.KsctlInstall
	if InstallRequested(&as.Spec) {
		selected, err := componentChoice(autoscalerComponent, map[string]any{"values": chartValues(as, in)})
		if err != nil {
			return nil, err
		}
		out = append(out, newInstall(as, DeploymentName(as.Name), selected, prioritiesComponent))
	}
	if slices.Contains(expanders(&as.Spec), priorityExpander) {
		selected, err := componentChoice(prioritiesComponent, map[string]any{"priorities": prioritiesYAML(as)})
		if err != nil {
			return nil, err
		}
		priorities := newInstall(as, PrioritiesName(as.Name), selected, autoscalerComponent)
		priorities.Spec.ClusterRef = &appsv1.ClusterReference{Name: as.Spec.ClusterRef.Name}
		out = append(out, priorities)
	}
	return out, nil
}

// chartValues returns the values for the chart of the stack. With mode Off it has no replicas.
func chartValues(as *clusterv1.KsctlAutoScaler, in Inputs) map[string]any {
	replicas := 1
	if as.Spec.Mode == clusterv1.ScalingOff {
		replicas = 0
	}
	out := map[string]any{
		"name": DeploymentName(as.Name), "replicas": replicas, "args": Flags(&as.Spec, in),
		"image":       map[string]any{"repository": imageRepository(&as.Spec), "tag": "v" + in.Version},
		"cloudConfig": CloudConfig(in.Address),
		"kubeconfig":  map[string]any{"secret": in.KubeConfigSecret, "key": in.KubeConfigKey},
		"tls":         map[string]any{"secret": in.ClientSecret},
		"configHash":  ConfigHash(&as.Spec, in),
	}
	if resources := deployment(&as.Spec).Resources; resources != nil {
		out["resources"] = resources
	}
	return out
}

func componentChoice(component string, override map[string]any) (appsv1.ComponentChoice, error) {
	raw, err := json.Marshal(override)
	return appsv1.ComponentChoice{Name: component, Override: &apiextensionsv1.JSON{Raw: raw}}, err
}

// newInstall returns an install of the stack with one component enabled and the other one disabled.
func newInstall(as *clusterv1.KsctlAutoScaler, name string, enabled appsv1.ComponentChoice,
	disabledComponent string) *appsv1.KsctlInstall {
	out := &appsv1.KsctlInstall{}
	out.Namespace, out.Name = as.Namespace, name
	out.Labels = map[string]string{Label: DeploymentName(as.Name)}
	out.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(),
		Kind: clusterv1.KsctlAutoScalerKind, Name: as.Name, UID: as.UID, Controller: ptr.To(true)}}
	as.Spec.Schedule.DeepCopyInto(&out.Spec.Schedule)
	out.Spec.Suspend = false
	out.Spec.SourceRef = appsv1.SourceRef{Kind: appsv1.CatalogKind}
	out.Spec.Stack, out.Spec.StackVersion = StackName, StackVersion
	out.Spec.ServiceAccountName = as.Spec.ServiceAccountName
	out.Spec.Components = []appsv1.ComponentChoice{enabled, {Name: disabledComponent, Enabled: ptr.To(false)}}
	return out
}
