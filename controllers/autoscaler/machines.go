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
)

// machine is a worker of a cluster: a place in its array of workers.
type machine struct {
	// index is the number in its name. The last machine has the highest one; a place may be empty.
	index int32
	size  string
	// pool that it is of; "": no pool has its size.
	pool string
	// nodeName is what the agent says of its node; "": nothing. node is that which it joined as;
	// nil: it has not.
	nodeName string
	node     *corev1.Node
	// joined is true for one that has, or had, a node.
	joined bool
	// lost is true for one that has not joined in time, and can't be deleted.
	lost bool
}

// ready is true for one whose node is.
func (m *machine) ready() bool { return m.node != nil && nodeReady(m.node) }

// leaves is true for one that may be deleted: that has not joined, or that Cluster Autoscaler has
// marked, as it does before it asks for that.
func (m *machine) leaves() bool {
	if m.node == nil {
		return true
	}
	_, marked := taintedAt(m.node)
	return marked
}

// made is true for a place that an operation had machines made for.
func made(place int, op *clusterv1.ScaleOperation) bool {
	return op != nil && op.Kind == clusterv1.OperationScaleUp && int32(place) >= op.From && int32(place) < op.DesiredWorkers
}

// fleet is the machines of a cluster.
type fleet struct {
	// machines in the order of the array.
	machines []machine
	// others is how many nodes are no machine of the array, such as those of the control plane.
	others int32
	// newestOther is when the latest of those joined.
	newestOther time.Time
	// strays are nodes of machines that are not there any more.
	strays []*corev1.Node
}

// hosts tells which node is which worker: ksctl names a machine <cluster>-vm-wp-<index>, and its
// first start may add a dash and five characters.
type hosts struct{ name *regexp.Regexp }

func newHosts(cluster string) hosts {
	return hosts{name: regexp.MustCompile(`^` + regexp.QuoteMeta(cluster) + `-vm-wp-(0|[1-9][0-9]{0,5})(-[a-z0-9]{5})?$`)}
}

// index of the worker whose node has a name; false: it is none of a worker.
func (h hosts) index(node string) (int32, bool) {
	m := h.name.FindStringSubmatch(node)
	if m == nil {
		return 0, false
	}
	i, err := strconv.ParseInt(m[1], 10, 32)
	return int32(i), err == nil && i < maxWorkers
}

// newFleet puts together what is known of the machines and what the cluster has.
func newFleet(h hosts, pools []clusterv1.WorkerPool, nodes []*corev1.Node, l listing) fleet {
	var f fleet
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
			f.others++
			f.newestOther = later(f.newestOther, node.CreationTimestamp.Time)
		case m == nil && (l.exact || l.hasLeft(i, node)):
			f.strays = append(f.strays, node)
		case m == nil:
			byIndex[i] = &machine{index: i, node: node}
		case m.node == nil:
			m.node = node
		case laterNode(node, m.node): // a machine that was made again, under another name
			f.strays = append(f.strays, m.node)
			m.node = node
		default:
			f.strays = append(f.strays, node)
		}
	}
	if !l.exact {
		fill(byIndex)
	}
	for place, i := range slices.Sorted(maps.Keys(byIndex)) {
		m := *byIndex[i]
		if l.exact {
			m.pool = poolOf(&m, pools)
		} else {
			l.place(&m, place, pools)
		}
		f.machines = append(f.machines, m)
	}
	slices.SortFunc(f.strays, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return f
}

// fill adds the machines before the last one that has a node: ksctl's array has no empty places.
func fill(byIndex map[int32]*machine) {
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

// poolOf is the pool of a machine: that of its size, as the agent or its node say it, or the one
// that its node was labelled with.
func poolOf(m *machine, pools []clusterv1.WorkerPool) string {
	if m.size == "" && m.node != nil {
		if p := labelled(pools, m.node); p != nil {
			return p.Name
		}
		m.size = m.node.Labels[corev1.LabelInstanceTypeStable]
	}
	if p := sizedAs(pools, m.size); p != nil {
		return p.Name
	}
	return ""
}

// labelled is the pool that a node has the label of; nil: none.
func labelled(pools []clusterv1.WorkerPool, node *corev1.Node) *clusterv1.WorkerPool {
	for i := range pools {
		if pools[i].Name == node.Labels[clusterv1.PoolLabel] {
			return &pools[i]
		}
	}
	return nil
}

// sizedAs is the pool whose machines are of a size; nil: none are.
func sizedAs(pools []clusterv1.WorkerPool, size string) *clusterv1.WorkerPool {
	for i := range pools {
		if strings.EqualFold(pools[i].NodeSize, size) {
			return &pools[i]
		}
	}
	return nil
}

// later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// laterNode is true for a node that came after another one.
func laterNode(a, b *corev1.Node) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name > b.Name
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// size is how many machines there are.
func (f *fleet) size() int32 { return int32(len(f.machines)) }

// unmanaged counts the machines of no pool.
func (f *fleet) unmanaged() (n int32) {
	for i := range f.machines {
		if f.machines[i].pool == "" {
			n++
		}
	}
	return n
}

// ofNoPool is true if one of the machines from a place on is of no pool.
func (f *fleet) ofNoPool(from int32) bool {
	for i := from; i < f.size(); i++ {
		if f.machines[i].pool == "" {
			return true
		}
	}
	return false
}

// dismissed is true for a place whose machine was to be deleted, and is there yet.
func dismissed(place int, op *clusterv1.ScaleOperation) bool {
	return op != nil && op.Kind == clusterv1.OperationScaleDown && op.State == clusterv1.OperationFailed && int32(place) >= op.DesiredWorkers && int32(place) < op.From
}

// lose has machines that are late be counted on by nobody until they join, but for those that may
// be deleted: the last ones, that the last operation made, or failed to delete. One that is counted on and neither joins
// nor goes would have Cluster Autoscaler stop scaling the whole cluster.
func (f *fleet) lose(late map[int32]bool, last *clusterv1.ScaleOperation, mode clusterv1.ScalingMode, plain bool) {
	end := len(f.machines)
	// Those of ksctl's own agent may have joined by another name.
	kept := mode == clusterv1.ScalingOff || plain && last != nil && f.newestOther.After(last.StartedAt.Time)
	for !kept && end > 0 {
		m := &f.machines[end-1]
		if !late[m.index] || !made(end-1, last) && !dismissed(end-1, last) || mode == clusterv1.ScalingUpOnly && m.joined {
			break
		}
		end--
	}
	for i := range end {
		f.machines[i].lost = late[f.machines[i].index]
	}
}
