package autoscaler

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

// machine is a worker of a cluster: an element of its array of workers.
type machine struct {
	// index is the number in its name. The last machine has the highest index; the indexes may have
	// gaps.
	index int32
	size  string
	// pool is the name of its pool; "" if no pool has its size.
	pool string
	// nodeName is the name of its node as reported by the agent; "" if it is not reported. node is
	// its Node; nil if it has not joined.
	nodeName string
	node     *corev1.Node
	// joined is true if the machine has, or had, a node.
	joined bool
	// lost is true if the machine has not joined in time and cannot be deleted.
	lost bool
}

// ready reports whether the machine's node is ready.
func (m *machine) ready() bool { return m.node != nil && nodeReady(m.node) }

// deletable reports whether the machine may be deleted: it has not joined, or Cluster Autoscaler
// has tainted its node, which precedes each deletion request.
func (m *machine) deletable() bool {
	if m.node == nil {
		return true
	}
	_, marked := taintedAt(m.node)
	return marked
}

// createdBy reports whether an operation creates, or created, the machine at a position.
func createdBy(position int, op *clusterv1.ScaleOperation) bool {
	return op != nil && op.Kind == clusterv1.OperationScaleUp && int32(position) >= op.From &&
		int32(position) < op.DesiredWorkers
}

// machines is the array of workers of a cluster, matched with its nodes.
type machines struct {
	// list is in the order of the array.
	list []machine
	// otherNodes is the number of nodes that are not workers, such as those of the control plane.
	otherNodes int32
	// newestOtherNode is the time at which the newest of these nodes was created.
	newestOtherNode time.Time
	// orphanedNodes are nodes whose machines no longer exist.
	orphanedNodes []*corev1.Node
}

// workerNames maps node names to workers: ksctl names a machine <cluster>-vm-wp-<index>, and its
// first boot may append a dash and five characters.
type workerNames struct{ pattern *regexp.Regexp }

func newWorkerNames(cluster string) workerNames {
	return workerNames{pattern: regexp.MustCompile(`^` + regexp.QuoteMeta(cluster) +
		`-vm-wp-(0|[1-9][0-9]{0,5})(-[a-z0-9]{5})?$`)}
}

// index returns the index of the worker whose node has a name; false if it is not a worker's name.
func (h workerNames) index(node string) (int32, bool) {
	m := h.pattern.FindStringSubmatch(node)
	if m == nil {
		return 0, false
	}
	i, err := strconv.ParseInt(m[1], 10, 32)
	return int32(i), err == nil && i < session.MaxWorkers
}

// newMachines matches the known workers with the nodes of the cluster.
func newMachines(h workerNames, pools []clusterv1.WorkerPool, nodes []*corev1.Node, l workerList) machines {
	var f machines
	byIndex, byNode := map[int32]*machine{}, map[string]*machine{}
	for _, m := range l.machines {
		byIndex[m.index] = &m
		if m.nodeName != "" {
			byNode[m.nodeName] = &m
		}
	}
	for _, node := range nodes {
		i, ok := h.index(node.Name)
		m := byNode[node.Name]
		if m == nil && ok {
			m = byIndex[i]
		}
		switch {
		case m == nil && !ok:
			f.otherNodes++
			f.newestOtherNode = later(f.newestOtherNode, node.CreationTimestamp.Time)
		case m == nil && (l.complete || l.wasDeleted(i, node)):
			f.orphanedNodes = append(f.orphanedNodes, node)
		case m == nil:
			byIndex[i] = &machine{index: i, node: node}
		case m.node == nil:
			m.node = node
		case precedes(m.node, node): // the machine was re-created, and its node has another name
			f.orphanedNodes = append(f.orphanedNodes, m.node)
			m.node = node
		default:
			f.orphanedNodes = append(f.orphanedNodes, node)
		}
	}
	if !l.complete {
		fillGaps(byIndex)
	}
	for position, i := range slices.Sorted(maps.Keys(byIndex)) {
		m := *byIndex[i]
		if l.complete {
			m.pool = poolOf(&m, pools)
		} else {
			l.assignPool(&m, position, pools)
		}
		f.list = append(f.list, m)
	}
	slices.SortFunc(f.orphanedNodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return f
}

// fillGaps adds the missing machines before the last one that has a node: ksctl's array has no
// gaps.
func fillGaps(byIndex map[int32]*machine) {
	last := int32(-1)
	for i := range byIndex {
		last = max(last, i)
	}
	for i := range last {
		if byIndex[i] == nil {
			byIndex[i] = &machine{index: i}
		}
	}
}

// poolOf returns the name of a machine's pool. If the agent does not report the size, it is the
// pool in the label of the node, else the pool whose size the node's instance type is.
func poolOf(m *machine, pools []clusterv1.WorkerPool) string {
	if m.size == "" && m.node != nil {
		if p := poolByName(pools, m.node.Labels[clusterv1.PoolLabel]); p != nil {
			return p.Name
		}
		m.size = m.node.Labels[corev1.LabelInstanceTypeStable]
	}
	if p := poolBySize(pools, m.size); p != nil {
		return p.Name
	}
	return ""
}

// poolByName returns the pool with a name; nil if there is none.
func poolByName(pools []clusterv1.WorkerPool, name string) *clusterv1.WorkerPool {
	for i := range pools {
		if pools[i].Name == name {
			return &pools[i]
		}
	}
	return nil
}

// poolBySize returns the pool with a machine size; nil if there is none.
func poolBySize(pools []clusterv1.WorkerPool, size string) *clusterv1.WorkerPool {
	for i := range pools {
		if strings.EqualFold(pools[i].NodeSize, size) {
			return &pools[i]
		}
	}
	return nil
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// size returns the number of machines.
func (f *machines) size() int32 { return int32(len(f.list)) }

// unmanaged returns the number of machines at or after a position that are in no pool.
func (f *machines) unmanaged(from int32) (n int32) {
	for i := from; i < f.size(); i++ {
		if f.list[i].pool == "" {
			n++
		}
	}
	return n
}

// deletionFailed reports whether an operation failed to delete the machine at a position.
func deletionFailed(position int, op *clusterv1.ScaleOperation) bool {
	return op != nil && op.Kind == clusterv1.OperationScaleDown && op.State == clusterv1.OperationFailed &&
		int32(position) >= op.DesiredWorkers && int32(position) < op.From
}

// markLost marks overdue machines as lost, so that they are not part of a target until they join.
// It skips the machines that may be deleted: the last ones, if the last operation created them or
// failed to delete them. A machine in the target that neither joins nor is deleted would make
// Cluster Autoscaler stop scaling the whole cluster.
func (f *machines) markLost(overdue map[int32]bool, last *clusterv1.ScaleOperation, mode clusterv1.ScalingMode,
	plain bool) {
	end := len(f.list)
	// Machines of ksctl's own agent may have joined under another name.
	kept := mode == clusterv1.ScalingOff || plain && last != nil && f.newestOtherNode.After(last.StartedAt.Time)
	for !kept && end > 0 {
		m := &f.list[end-1]
		if !overdue[m.index] || !createdBy(end-1, last) && !deletionFailed(end-1, last) ||
			mode == clusterv1.ScalingUpOnly && m.joined {
			break
		}
		end--
	}
	for i := range end {
		f.list[i].lost = overdue[f.list[i].index]
	}
}
