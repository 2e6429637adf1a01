package settings

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// priorityExpander is the expander that selects a pool by its priority.
const priorityExpander clusterv1.Expander = "Priority"

// expanderNames maps expanders of the API to their names in Cluster Autoscaler's --expander flag.
var expanderNames = map[clusterv1.Expander]string{
	"LeastWaste": "least-waste", priorityExpander: "priority", "LeastNodes": "least-nodes", "MostPods": "most-pods",
	"Random": "random",
}

// Cluster Autoscaler's default maxima, for limits whose maximum is unset. Memory is in GiB.
const (
	defaultMaxCores     = 320_000
	defaultMaxMemoryGiB = 6_400_000
)

// defaultMaxNodeProvisionTime exceeds Cluster Autoscaler's default because ksctl creates machines
// one at a time.
const defaultMaxNodeProvisionTime = 20 * time.Minute

// ProvisionTime returns spec.scaleUp.maxNodeProvisionTime or its default.
func ProvisionTime(spec *clusterv1.KsctlAutoScalerSpec) time.Duration {
	up := ptr.Deref(spec.ScaleUp, clusterv1.ScaleUp{})
	return ptr.Deref(up.MaxNodeProvisionTime, metav1.Duration{Duration: defaultMaxNodeProvisionTime}).Duration
}

// balancingIgnoredLabels are labels in which otherwise similar pools differ.
var balancingIgnoredLabels = []string{clusterv1.PoolLabel, "node.kubernetes.io/instance-type",
	"beta.kubernetes.io/instance-type"}

// flags are the arguments of a command line.
type flags []string

func (f *flags) set(name, format string, args ...any) {
	*f = append(*f, "--"+name+"="+fmt.Sprintf(format, args...))
}

// setDuration sets a flag unless the value equals Cluster Autoscaler's default.
func (f *flags) setDuration(name string, d *metav1.Duration, defaultValue time.Duration) {
	if d != nil && d.Duration != defaultValue {
		f.set(name, "%s", d.Duration)
	}
}

// Flags returns Cluster Autoscaler's flags for the spec, sorted: the flags that differ from its
// defaults, and those that must be set regardless of the defaults.
func Flags(spec *clusterv1.KsctlAutoScalerSpec, in Inputs) []string {
	var f flags
	f.set("cloud-provider", "externalgrpc")
	f.set("cloud-config", CloudConfigFile)
	f.set("kubeconfig", KubeConfigFile)
	f.set("namespace", Namespace)
	f.set("leader-elect", "true")
	f.set("leader-elect-resource-name", LeaseName)
	f.set("v", "%d", ptr.Deref(deployment(spec).LogVerbosity, 1))
	f.addLimits(spec.Limits)
	f.addScaleUp(spec, in.Version)
	f.addScaleDown(spec)
	f.addPodRules(spec.Pods)
	slices.Sort(f)
	return f
}

func (f *flags) addLimits(l *clusterv1.ScalingLimits) {
	if l == nil {
		return
	}
	if l.MaxNodesTotal > 0 {
		f.set("max-nodes-total", "%d", l.MaxNodesTotal)
	}
	f.setBounds("cores-total", l.Cores, defaultMaxCores)
	f.setBounds("memory-total", l.MemoryGiB, defaultMaxMemoryGiB)
}

func (f *flags) setBounds(name string, b *clusterv1.Bounds, defaultMax int32) {
	if b == nil || b.Min == nil && b.Max == nil {
		return
	}
	lower := ptr.Deref(b.Min, 0)
	f.set(name, "%d:%d", lower, max(lower, ptr.Deref(b.Max, defaultMax)))
}

func expanders(spec *clusterv1.KsctlAutoScalerSpec) []clusterv1.Expander {
	if spec.ScaleUp == nil || len(spec.ScaleUp.Expanders) == 0 {
		return []clusterv1.Expander{"LeastWaste"}
	}
	return spec.ScaleUp.Expanders
}

func (f *flags) addScaleUp(spec *clusterv1.KsctlAutoScalerSpec, version string) {
	var names []string
	for _, e := range expanders(spec) {
		names = append(names, expanderNames[e])
	}
	f.set("expander", "%s", strings.Join(names, ","))
	up := ptr.Deref(spec.ScaleUp, clusterv1.ScaleUp{})
	f.set("enforce-node-group-min-size", "%t", ptr.Deref(up.EnforceMinSize, true))
	f.set("max-node-provision-time", "%s", ProvisionTime(spec))
	if supportsMaxNodeStartupTime(version) {
		f.setDuration("max-node-startup-time", up.MaxNodeStartupTime, 15*time.Minute)
	}
	f.setDuration("new-pod-scale-up-delay", up.NewPodDelay, 0)
	f.setDuration("scan-interval", up.ScanInterval, 10*time.Second)
	if up.BalanceSimilarPools {
		f.set("balance-similar-node-groups", "true")
		for _, label := range balancingIgnoredLabels {
			f.set("balancing-ignore-label", "%s", label)
		}
	}
}

func (f *flags) addScaleDown(spec *clusterv1.KsctlAutoScalerSpec) {
	if spec.Mode == clusterv1.ScalingUpOnly || spec.Mode == clusterv1.ScalingOff {
		f.set("scale-down-enabled", "false")
	}
	// Only the last worker can be removed, and then the one before it: one at a time.
	f.set("max-scale-down-parallelism", "1")
	down := spec.ScaleDown
	if down == nil {
		return
	}
	if p := ptr.Deref(down.UtilizationThresholdPercent, 50); p != 50 {
		f.set("scale-down-utilization-threshold", "%s", strconv.FormatFloat(float64(p)/100, 'f', -1, 64))
	}
	f.setDuration("scale-down-unneeded-time", down.UnneededTime, 10*time.Minute)
	f.setDuration("scale-down-unready-time", down.UnreadyTime, 20*time.Minute)
	f.setDuration("scale-down-delay-after-add", down.DelayAfterAdd, 10*time.Minute)
	f.setDuration("scale-down-delay-after-delete", down.DelayAfterDelete, 0)
	f.setDuration("scale-down-delay-after-failure", down.DelayAfterFailure, 3*time.Minute)
	if d := down.MaxGracefulTermination; d != nil && d.Duration != 10*time.Minute {
		f.set("max-graceful-termination-sec", "%d", int64(math.Ceil(d.Seconds())))
	}
}

func (f *flags) addPodRules(p *clusterv1.PodRules) {
	if p == nil {
		return
	}
	for _, rule := range []struct {
		name   string
		is     bool
		theirs bool
	}{
		{"skip-nodes-with-local-storage", ptr.Deref(p.SkipNodesWithLocalStorage, true), true},
		{"skip-nodes-with-system-pods", ptr.Deref(p.SkipNodesWithSystemPods, true), true},
		{"skip-nodes-with-custom-controller-pods", ptr.Deref(p.SkipNodesWithCustomControllerPods, true), true},
		{"ignore-daemonsets-utilization", p.IgnoreDaemonSetsUtilization, false},
	} {
		if rule.is != rule.theirs {
			f.set(rule.name, "%t", rule.is)
		}
	}
	if cutoff := ptr.Deref(p.PriorityCutoff, -10); cutoff != -10 {
		f.set("expendable-pods-priority-cutoff", "%d", cutoff)
	}
}
