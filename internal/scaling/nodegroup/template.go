package nodegroup

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// TemplateInput is what is known of the next node of a pool.
type TemplateInput struct {
	Pool clusterv1.WorkerPool
	// Node of the pool that is there, and ready; nil: there is none.
	Node *corev1.Node
	// InstanceType, Region and Zone are labels that a new node will have; "": it won't.
	InstanceType, Region, Zone string
	// Arch of the machine in Go's words. "": what the catalogue says of its size, or amd64.
	Arch string
}

// Template is what the next node of a pool would be like, and how that is known: like a node
// that is there, or else a machine with the capacity that the spec says, or else with that of
// the catalogue of sizes. Where none of them says it, it is a machine so small that few pods
// are thought to fit in.
func Template(in TemplateInput) (*corev1.Node, clusterv1.TemplateSource) {
	name := "template-of-" + in.Pool.Name
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	source := clusterv1.TemplateNode
	if usable(in.Node) {
		like(out, in.Node)
	} else {
		var has machine
		has, source = in.machine()
		out.Status.Capacity, out.Status.Allocatable = has.capacity(), has.allocatable()
		out.Labels[corev1.LabelOSStable], out.Labels[corev1.LabelArchStable] = "linux", has.arch()
	}
	for label, value := range map[string]string{corev1.LabelInstanceTypeStable: in.InstanceType,
		corev1.LabelTopologyRegion: in.Region, corev1.LabelTopologyZone: in.Zone, corev1.LabelArchStable: in.Arch} {
		if value != "" {
			out.Labels[label] = value
		}
	}
	for label, value := range in.Pool.Labels {
		out.Labels[label] = value
	}
	out.Labels[clusterv1.PoolLabel], out.Labels[corev1.LabelHostname] = in.Pool.Name, name
	for _, t := range in.Pool.Taints {
		same := func(o corev1.Taint) bool { return o.MatchTaint(&t) }
		out.Spec.Taints = append(slices.DeleteFunc(out.Spec.Taints, same),
			corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	out.Status.NodeInfo.OperatingSystem, out.Status.NodeInfo.Architecture = out.Labels[corev1.LabelOSStable], out.Labels[corev1.LabelArchStable]
	out.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, bad := range []corev1.NodeConditionType{corev1.NodeNetworkUnavailable, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		out.Status.Conditions = append(out.Status.Conditions, corev1.NodeCondition{Type: bad, Status: corev1.ConditionFalse})
	}
	return out, source
}

// Marshal is a node as Cluster Autoscaler reads it. It is never empty without an error.
func Marshal(node *corev1.Node) ([]byte, error) {
	if node == nil {
		return nil, errors.New("template of a node: there is none")
	}
	out, err := node.Marshal()
	if err == nil && len(out) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("template of a node: %w", err)
	}
	return out, nil
}

// usable is true for a node that says what fits in.
func usable(n *corev1.Node) bool {
	return n != nil && !n.Status.Allocatable.Cpu().IsZero() && !n.Status.Allocatable.Memory().IsZero()
}

// like makes a template of a node, without what is that node's alone.
func like(out, n *corev1.Node) {
	own := map[string]bool{n.Name: true}
	for _, a := range n.Status.Addresses {
		own[a.Address] = true
	}
	for label, value := range n.Labels {
		if value == "" || !own[value] {
			out.Labels[label] = value
		}
	}
	for label, value := range map[string]string{corev1.LabelOSStable: n.Status.NodeInfo.OperatingSystem, corev1.LabelArchStable: n.Status.NodeInfo.Architecture} {
		if out.Labels[label] == "" && value != "" {
			out.Labels[label] = value
		}
	}
	for _, t := range n.Spec.Taints {
		if !passing(t.Key) {
			out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	out.Status.Capacity, out.Status.Allocatable = n.Status.Capacity.DeepCopy(), n.Status.Allocatable.DeepCopy()
}

// passing is true for a taint that says how a node stands just now.
func passing(taint string) bool {
	for _, prefix := range []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "startup-taint.cluster-autoscaler.kubernetes.io/",
		"status-taint.cluster-autoscaler.kubernetes.io/", "ignore-taint.cluster-autoscaler.kubernetes.io/"} {
		if strings.HasPrefix(taint, prefix) {
			return true
		}
	}
	return taint == "ToBeDeletedByClusterAutoscaler" || taint == "DeletionCandidateOfClusterAutoscaler" || strings.HasSuffix(taint, "/agent-not-ready")
}

// machine is what a machine has, in thousandths of a CPU and in bytes.
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

// What a machine has that nothing else is known of.
const (
	defaultStorage = 20 * gib
	defaultPods    = 110
)

// guess is a machine that nothing is known of.
var guess = machine{cpu: 1000, memory: gib, storage: defaultStorage, pods: defaultPods}

// machine is what the pool's machines are thought to have, and how that is known.
func (in TemplateInput) machine() (machine, clusterv1.TemplateSource) {
	has, source := guess, clusterv1.TemplateUnknown
	if s, ok := sizes[strings.ToLower(in.Pool.NodeSize)]; ok {
		has, source = s.machine(), clusterv1.TemplateCatalog
	}
	if c := in.Pool.Capacity; c != nil {
		has.cpu, has.memory, source = c.CPU.MilliValue(), c.Memory.Value(), clusterv1.TemplateOverride
		if c.EphemeralStorage != nil {
			has.storage = c.EphemeralStorage.Value()
		}
		if c.Pods != nil {
			has.pods = int64(*c.Pods)
		}
	}
	return has, source
}

func (m machine) capacity() corev1.ResourceList { return m.list(m.cpu, m.memory) }

// allocatable is what pods may have of it.
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
