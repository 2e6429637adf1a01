package settings_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	goldenfile "github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/internal/scaling/settings"
)

// fullSpec returns a spec with every field set.
func fullSpec() *clusterv1.KsctlAutoScalerSpec {
	spec := &customized().Spec
	spec.Mode = clusterv1.ScalingUpOnly
	spec.Agent.SecretRef, spec.Agent.ServerName = &fluxmeta.LocalObjectReference{Name: "agent"}, "agent"
	spec.Autoscaler.Install = ptr.To(true)
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	spec.Autoscaler.Resources.Limits = one
	spec.Autoscaler.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu", Request: "one"}}
	spec.Limits.MemoryGiB.Min = ptr.To[int32](8)
	storage, at := resource.MustParse("20Gi"), metav1.NewTime(time.Unix(1_800_000_000, 0))
	spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "t3.medium", MinSize: 1, MaxSize: 5, Priority: 10,
		Labels: map[string]string{"tier": "web"},
		Taints: []corev1.Taint{
			{Key: "dedicated", Value: "web", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &at}},
		Capacity: &clusterv1.MachineCapacity{CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi"),
			EphemeralStorage: &storage, Pods: ptr.To[int32](110)}}}
	return spec
}

// TestGoldenHashes: the Pods of Cluster Autoscaler carry the hash of their settings. If an update
// of the controller changed the hash, each of them would restart.
func TestGoldenHashes(t *testing.T) {
	in := inputs()
	goldenfile.Complete(t, in)
	full := fullSpec()
	goldenfile.Complete(t, full)
	empty := &clusterv1.KsctlAutoScalerSpec{}
	var lines strings.Builder
	for _, c := range []struct {
		name string
		spec *clusterv1.KsctlAutoScalerSpec
		in   settings.Inputs
	}{{"least", empty, settings.Inputs{}}, {"what is required", &minimal().Spec, in}, {"every field", full, in}} {
		_, _ = fmt.Fprintf(&lines, "%s: %s\n", c.name, settings.ConfigHash(c.spec, c.in))
	}
	goldenfile.Equal(t, "hashes.txt", []byte(lines.String()))
}

// TestGoldenNames: objects in clusters have these names and labels, and Pods have these paths.
func TestGoldenNames(t *testing.T) {
	var lines strings.Builder
	for _, name := range []string{"prod-eu", "prod.eu", strings.Repeat("x", 63), strings.Repeat("x", 252) + "y"} {
		_, _ = fmt.Fprintf(&lines, "%s: %s %s %s\n", name, settings.DeploymentName(name),
			settings.PrioritiesName(name), settings.ClientSecretName(name))
	}
	_, _ = fmt.Fprintf(&lines, "label: %s\n", settings.Label)
	_, _ = fmt.Fprintf(&lines, "stack: %s %s\n", settings.StackName, settings.StackVersion)
	_, _ = fmt.Fprintf(&lines, "files: %s %s %s\n", settings.CloudConfigFile, settings.KubeConfigFile,
		settings.TLSDir)
	_, _ = fmt.Fprintf(&lines, "in the cluster: %s %s %s\n", settings.Namespace, settings.LeaseName,
		settings.StatusConfigMap)
	goldenfile.Equal(t, "names.txt", []byte(lines.String()))
}
