package autoscaler

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// workerRole is that of workers in the facts of a cluster.
const workerRole clusterv1.PoolRole = "Worker"

// listing is what is known of the array.
type listing struct {
	// machines by their index, in order, with their sizes, "" where that is not known.
	machines []machine
	// exact is true where there are no others: a node of another one is of a machine that is gone.
	exact bool
	// last operation, by which is known what can't be asked where it is not exact.
	last *clusterv1.ScaleOperation
	// young are machines whose nodes do not say of what size they are, by their index.
	young map[int32]string
	// counted is how many there are where the imported state is not asked.
	counted int32
	// imported is how many the imported state has, -1 where there is none, and importedSize that of
	// those of which nothing else is known.
	imported     int32
	importedSize string
}

// hasLeft is true for a node of a machine that the last operation deleted.
func (l *listing) hasLeft(index int32, node *corev1.Node) bool {
	op := l.last
	return op != nil && op.Kind != clusterv1.OperationScaleUp && op.State == clusterv1.OperationSucceeded && op.EndedAt != nil &&
		index >= op.DesiredWorkers && !node.CreationTimestamp.After(op.EndedAt.Time)
}

// listingOf is what is known of the array of workers. ksctl's own agent says nothing: then there
// are as many as there were, as the last operation left them, or more when the imported state says
// so. That it has fewer may be of before.
func listingOf(said answer, c *clusterv1.KsctlCluster, status *clusterv1.KsctlAutoScalerStatus, now time.Time) listing {
	l := listing{exact: !said.plain, last: status.Operation, counted: status.Workers}
	l.imported, l.importedSize = importedWorkers(c)
	for _, w := range said.workers {
		l.machines = append(l.machines, machine{index: int32(w.Index), size: w.Size, nodeName: w.Node})
	}
	if !said.plain {
		return l
	}
	if op := l.last; atWork(op) && said.word.id == op.ID && said.word.state == agentSucceeded {
		// Its nodes come to be known, or to be gone, some time after it said so.
		l.last, l.counted = op.DeepCopy(), op.DesiredWorkers
		l.last.State, l.last.EndedAt = clusterv1.OperationSucceeded, &metav1.Time{Time: now.Truncate(time.Second)}
	}
	l.young = map[int32]string{}
	for _, w := range status.NewWorkers {
		l.young[w.Index] = w.NodeSize
	}
	count := l.counted
	if seen := status.ImportedWorkers; seen == nil || *seen != l.imported {
		count = max(count, l.imported)
	}
	for i := range min(count, maxWorkers) {
		l.machines = append(l.machines, machine{index: i})
	}
	return l
}

// importedWorkers is how many workers the imported state has, -1 where there is none; and their
// size, where all are of one.
func importedWorkers(c *clusterv1.KsctlCluster) (count int32, size string) {
	if c.Status.Facts == nil {
		return -1, ""
	}
	for _, p := range c.Status.Facts.Pools {
		if p.Role == workerRole {
			count, size = count+p.Count, p.Size
		}
	}
	return count, size
}

// place puts a machine into a pool where the agent does not say of what size it is: the one that its
// node was labelled with, that it was made for, or whose size its node or the imported state has. The
// size that a node has is asked late: k3s has it be "k3s".
func (l *listing) place(m *machine, at int, pools []clusterv1.WorkerPool) {
	sizes := []string{l.young[m.index]}
	if op := l.last; op != nil && op.Kind != clusterv1.OperationScaleDown && int32(at) >= min(op.From, op.DesiredWorkers) && int32(at) < max(op.From, op.DesiredWorkers) {
		sizes = append(sizes, op.NodeSize)
	}
	if m.node != nil {
		if name := m.node.Labels[clusterv1.PoolLabel]; slices.ContainsFunc(pools, func(p clusterv1.WorkerPool) bool { return p.Name == name }) {
			m.pool = name
			return
		}
		sizes = append(sizes, m.node.Labels[corev1.LabelInstanceTypeStable])
	}
	if int32(at) < l.imported {
		sizes = append(sizes, l.importedSize)
	}
	for _, size := range sizes {
		if i := slices.IndexFunc(pools, func(p clusterv1.WorkerPool) bool { return strings.EqualFold(p.NodeSize, size) }); i >= 0 {
			m.size, m.pool = size, pools[i].Name
			return
		}
	}
}
