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

// priority is the expander that goes by the priorities of pools.
const priority clusterv1.Expander = "Priority"

// expanderFlags are the names by which Cluster Autoscaler knows expanders.
var expanderFlags = map[clusterv1.Expander]string{
	"LeastWaste": "least-waste", priority: "priority", "LeastNodes": "least-nodes", "MostPods": "most-pods", "Random": "random",
}

// Defaults of Cluster Autoscaler, for what is not bounded. Memory is in GiB.
const (
	maxCores  = 320_000
	maxMemory = 6_400_000
)

// maxNodeProvisionTime when unset: ksctl makes machines one after the other.
const maxNodeProvisionTime = 20 * time.Minute

// balancingIgnores are labels in which pools differ that are alike else.
var balancingIgnores = []string{clusterv1.PoolLabel, "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"}

// flags of a command line.
type flags []string

func (f *flags) set(name, format string, args ...any) {
	*f = append(*f, "--"+name+"="+fmt.Sprintf(format, args...))
}

// duration sets a flag where it is not what Cluster Autoscaler has anyhow.
func (f *flags) duration(name string, d *metav1.Duration, theirs time.Duration) {
	if d != nil && d.Duration != theirs {
		f.set(name, "%s", d.Duration)
	}
}

// Flags of Cluster Autoscaler that the spec means, in order: what differs from its defaults, and
// what has to be so whatever those are.
func Flags(spec *clusterv1.KsctlAutoScalerSpec, in Inputs) []string {
	var f flags
	f.set("cloud-provider", "externalgrpc")
	f.set("cloud-config", CloudConfigFile)
	f.set("kubeconfig", KubeConfigFile)
	f.set("namespace", Namespace)
	f.set("leader-elect", "true")
	f.set("leader-elect-resource-name", LeaseName)
	verbosity := int32(1)
	if a := spec.Autoscaler; a != nil {
		verbosity = ptr.Deref(a.LogVerbosity, verbosity)
	}
	f.set("v", "%d", verbosity)
	f.limits(spec.Limits)
	f.scaleUp(spec, in.Version)
	f.scaleDown(spec)
	f.pods(spec.Pods)
	slices.Sort(f)
	return f
}

func (f *flags) limits(l *clusterv1.ScalingLimits) {
	if l == nil {
		return
	}
	if l.MaxNodesTotal > 0 {
		f.set("max-nodes-total", "%d", l.MaxNodesTotal)
	}
	f.bounds("cores-total", l.Cores, maxCores)
	f.bounds("memory-total", l.MemoryGiB, maxMemory)
}

func (f *flags) bounds(name string, b *clusterv1.Bounds, most int32) {
	if b == nil || b.Min == nil && b.Max == nil {
		return
	}
	least := ptr.Deref(b.Min, 0)
	f.set(name, "%d:%d", least, max(least, ptr.Deref(b.Max, most)))
}

func expanders(spec *clusterv1.KsctlAutoScalerSpec) []clusterv1.Expander {
	if spec.ScaleUp == nil || len(spec.ScaleUp.Expanders) == 0 {
		return []clusterv1.Expander{"LeastWaste"}
	}
	return spec.ScaleUp.Expanders
}

func (f *flags) scaleUp(spec *clusterv1.KsctlAutoScalerSpec, version string) {
	var names []string
	for _, e := range expanders(spec) {
		names = append(names, expanderFlags[e])
	}
	f.set("expander", "%s", strings.Join(names, ","))
	up := spec.ScaleUp
	if up == nil {
		up = &clusterv1.ScaleUp{}
	}
	f.set("enforce-node-group-min-size", "%t", ptr.Deref(up.EnforceMinSize, true))
	f.set("max-node-provision-time", "%s", ptr.Deref(up.MaxNodeProvisionTime, metav1.Duration{Duration: maxNodeProvisionTime}).Duration)
	if hasStartupTime(version) {
		f.duration("max-node-startup-time", up.MaxNodeStartupTime, 15*time.Minute)
	}
	f.duration("new-pod-scale-up-delay", up.NewPodDelay, 0)
	f.duration("scan-interval", up.ScanInterval, 10*time.Second)
	if up.BalanceSimilarPools {
		f.set("balance-similar-node-groups", "true")
		for _, label := range balancingIgnores {
			f.set("balancing-ignore-label", "%s", label)
		}
	}
}

func (f *flags) scaleDown(spec *clusterv1.KsctlAutoScalerSpec) {
	if spec.Mode == clusterv1.ScalingUpOnly || spec.Mode == clusterv1.ScalingOff {
		f.set("scale-down-enabled", "false")
	}
	// The last worker alone can go, and then the one before it.
	f.set("max-scale-down-parallelism", "1")
	down := spec.ScaleDown
	if down == nil {
		return
	}
	if p := ptr.Deref(down.UtilizationThresholdPercent, 50); p != 50 {
		f.set("scale-down-utilization-threshold", "%s", strconv.FormatFloat(float64(p)/100, 'f', -1, 64))
	}
	f.duration("scale-down-unneeded-time", down.UnneededTime, 10*time.Minute)
	f.duration("scale-down-unready-time", down.UnreadyTime, 20*time.Minute)
	f.duration("scale-down-delay-after-add", down.DelayAfterAdd, 10*time.Minute)
	f.duration("scale-down-delay-after-delete", down.DelayAfterDelete, 0)
	f.duration("scale-down-delay-after-failure", down.DelayAfterFailure, 3*time.Minute)
	if d := down.MaxGracefulTermination; d != nil && d.Duration != 10*time.Minute {
		f.set("max-graceful-termination-sec", "%d", int64(math.Ceil(d.Seconds())))
	}
}

func (f *flags) pods(p *clusterv1.PodRules) {
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
