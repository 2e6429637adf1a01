package nodegroup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// Template returns a template of the next node of a pool and the source of its capacity: an
// existing node of the pool, or else the capacity in the spec, or else the size catalog. If none of
// them is available, the template is so small that Cluster Autoscaler fits few pods on it. existing
// is a ready node of the pool; nil if there is none.
func Template(pool *clusterv1.WorkerPool, existing *corev1.Node) (*corev1.Node, clusterv1.TemplateSource) {
	name := "template-of-" + pool.Name
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	source := clusterv1.TemplateNode
	if reportsAllocatable(existing) {
		fillFromNode(out, existing)
	} else {
		var hardware machine
		hardware, source = assumedMachine(pool)
		out.Status.Capacity, out.Status.Allocatable = hardware.capacity(), hardware.allocatable()
		out.Labels[corev1.LabelOSStable], out.Labels[corev1.LabelArchStable] = "linux", hardware.arch()
	}
	maps.Copy(out.Labels, pool.Labels)
	out.Labels[clusterv1.PoolLabel], out.Labels[corev1.LabelHostname] = pool.Name, name
	for _, t := range pool.Taints {
		same := func(o corev1.Taint) bool { return o.MatchTaint(&t) }
		out.Spec.Taints = append(slices.DeleteFunc(out.Spec.Taints, same),
			corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	out.Status.NodeInfo.OperatingSystem, out.Status.NodeInfo.Architecture = out.Labels[corev1.LabelOSStable],
		out.Labels[corev1.LabelArchStable]
	out.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, condition := range []corev1.NodeConditionType{corev1.NodeNetworkUnavailable, corev1.NodeMemoryPressure,
		corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		out.Status.Conditions = append(out.Status.Conditions,
			corev1.NodeCondition{Type: condition, Status: corev1.ConditionFalse})
	}
	return out, source
}

// MarshalNode encodes a node for Cluster Autoscaler.
func MarshalNode(node *corev1.Node) ([]byte, error) {
	out, err := node.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding node template: %w", err)
	}
	return out, nil
}

// reportsAllocatable reports whether a node's status has allocatable CPU and memory.
func reportsAllocatable(n *corev1.Node) bool {
	return n != nil && !n.Status.Allocatable.Cpu().IsZero() && !n.Status.Allocatable.Memory().IsZero()
}

// fillFromNode fills a template from a node, without the properties that are specific to that node:
// labels with its name or an address as value, and transient taints.
func fillFromNode(out, n *corev1.Node) {
	nodeValues := map[string]bool{n.Name: true}
	for _, a := range n.Status.Addresses {
		nodeValues[a.Address] = true
	}
	for label, value := range n.Labels {
		if value == "" || !nodeValues[value] {
			out.Labels[label] = value
		}
	}
	for label, value := range map[string]string{corev1.LabelOSStable: n.Status.NodeInfo.OperatingSystem,
		corev1.LabelArchStable: n.Status.NodeInfo.Architecture} {
		if out.Labels[label] == "" && value != "" {
			out.Labels[label] = value
		}
	}
	for _, t := range n.Spec.Taints {
		if !isTransientTaint(t.Key) {
			out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	out.Status.Capacity, out.Status.Allocatable = n.Status.Capacity.DeepCopy(), n.Status.Allocatable.DeepCopy()
}

// isTransientTaint reports whether a taint describes the current state of a node.
func isTransientTaint(taint string) bool {
	for _, prefix := range []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/",
		"startup-taint.cluster-autoscaler.kubernetes.io/",
		"status-taint.cluster-autoscaler.kubernetes.io/", "ignore-taint.cluster-autoscaler.kubernetes.io/"} {
		if strings.HasPrefix(taint, prefix) {
			return true
		}
	}
	return taint == "ToBeDeletedByClusterAutoscaler" || taint == "DeletionCandidateOfClusterAutoscaler" ||
		strings.HasSuffix(taint, "/agent-not-ready")
}

// machine is the hardware of a machine: cpu in thousandths of a CPU, memory and storage in bytes.
type machine struct {
	cpu, memory, storage, pods int64
	arm                        bool
}

func (m machine) arch() string {
	if m.arm {
		return "arm64"
	}
	return "amd64"
}

// Ephemeral storage and number of pods of a machine for which they are unknown.
const (
	defaultStorage = 20 * gib
	defaultPods    = 110
)

// fallbackMachine is the hardware of a machine about which nothing is known.
var fallbackMachine = machine{cpu: 1000, memory: gib, storage: defaultStorage, pods: defaultPods}

// assumedMachine returns the assumed hardware of a pool's machines and its source.
func assumedMachine(pool *clusterv1.WorkerPool) (machine, clusterv1.TemplateSource) {
	hardware, source := fallbackMachine, clusterv1.TemplateUnknown
	if s, ok := sizeCatalog[strings.ToLower(pool.NodeSize)]; ok {
		hardware, source = s, clusterv1.TemplateCatalog
	}
	if c := pool.Capacity; c != nil {
		hardware.cpu, hardware.memory, source = c.CPU.MilliValue(), c.Memory.Value(), clusterv1.TemplateOverride
		if c.EphemeralStorage != nil {
			hardware.storage = c.EphemeralStorage.Value()
		}
		if c.Pods != nil {
			hardware.pods = int64(*c.Pods)
		}
	}
	return hardware, source
}

func (m machine) capacity() corev1.ResourceList { return m.list(m.cpu, m.memory) }

// allocatable returns the resources that are available to pods.
func (m machine) allocatable() corev1.ResourceList {
	return m.list(max(m.cpu-reservedCPU(m.cpu), 0), max(m.memory-reservedMemory(m.memory), 0))
}

func (m machine) list(cpu, memory int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(cpu, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(memory, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.storage, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(m.pods, resource.DecimalSI),
	}
}
