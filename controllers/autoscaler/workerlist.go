package autoscaler

import (
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
	// sizes of machines that were known before, by their index: most nodes do not say it.
	sizes map[int32]string
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
	l.sizes = map[int32]string{}
	for _, w := range status.WorkerSizes {
		l.sizes[w.Index] = w.NodeSize
	}
	count := l.counted
	// What has just succeeded is newer.
	if seen := status.ImportedWorkers; l.last == status.Operation && (seen == nil || *seen != l.imported) {
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
// node was labelled with, or whose size its node has, or it had before, was asked for with, or has in
// the imported state. The size of a node may be no cloud's: k3s has it be "k3s".
func (l *listing) place(m *machine, at int, pools []clusterv1.WorkerPool) {
	sizes := make([]string, 0, 4)
	if m.node != nil {
		if p := labelled(pools, m.node); p != nil {
			m.size, m.pool = p.NodeSize, p.Name
			return
		}
		sizes = append(sizes, m.node.Labels[corev1.LabelInstanceTypeStable])
	}
	m.size = l.sizes[m.index] // kept for a pool that comes back
	sizes = append(sizes, m.size)
	if op := l.last; op != nil && op.Kind != clusterv1.OperationScaleDown && int32(at) >= min(op.From, op.DesiredWorkers) && int32(at) < max(op.From, op.DesiredWorkers) {
		sizes = append(sizes, op.NodeSize)
	}
	if int32(at) < l.imported {
		sizes = append(sizes, l.importedSize)
	}
	for _, size := range sizes {
		if p := sizedAs(pools, size); p != nil {
			m.size, m.pool = size, p.Name
			return
		}
	}
}
