package autoscaler

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"

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
	// node that it joined as; nil: it has not.
	node *corev1.Node
}

// ready is true for one whose node is.
func (m *machine) ready() bool { return m.node != nil && nodeReady(m.node) }

// fleet is the machines of a cluster.
type fleet struct {
	// machines in the order of the array.
	machines []machine
	// others is how many nodes are no machine of the array, such as those of the control plane.
	others int32
	// strays are nodes of machines that are not there any more.
	strays []*corev1.Node
}

// listing is what is known of the array.
type listing struct {
	// machines by their index, in order, with their sizes, "" where that is not known.
	machines []machine
	// exact is true where there are no others: a node of another one is of a machine that is gone.
	exact bool
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
	return int32(i), err == nil
}

// newFleet puts together what is known of the machines and what the cluster has.
func newFleet(h hosts, pools []clusterv1.WorkerPool, nodes []*corev1.Node, l listing) fleet {
	var f fleet
	byIndex := map[int32]*machine{}
	for _, m := range l.machines {
		byIndex[m.index] = &m
	}
	for _, node := range nodes {
		i, ok := h.index(node.Name)
		m := byIndex[i]
		switch {
		case !ok:
			f.others++
		case m == nil && l.exact:
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
	bySize := map[string]string{}
	for _, p := range pools {
		bySize[p.NodeSize] = p.Name
	}
	for _, i := range slices.Sorted(maps.Keys(byIndex)) {
		m := *byIndex[i]
		m.pool = poolOf(&m, pools, bySize)
		f.machines = append(f.machines, m)
	}
	slices.SortFunc(f.strays, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return f
}

// poolOf is the pool of a machine: that of its size, as the agent or its node say it, or the one
// that its node was labelled with.
func poolOf(m *machine, pools []clusterv1.WorkerPool, bySize map[string]string) string {
	if m.size != "" || m.node == nil {
		return bySize[m.size]
	}
	if name := m.node.Labels[clusterv1.PoolLabel]; slices.ContainsFunc(pools, func(p clusterv1.WorkerPool) bool { return p.Name == name }) {
		return name
	}
	m.size = m.node.Labels[corev1.LabelInstanceTypeStable]
	return bySize[m.size]
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

// lose has machines that are late, and can't be deleted as others are behind them, be of no pool until
// they join: who asked for them is not to wait for them any more.
func (f *fleet) lose(late map[int32]bool) {
	last := len(f.machines) - 1
	for last >= 0 && late[f.machines[last].index] {
		last--
	}
	for i := range max(last, 0) {
		if m := &f.machines[i]; late[m.index] {
			m.pool = ""
		}
	}
}
