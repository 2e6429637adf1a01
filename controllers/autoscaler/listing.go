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
	// imported is how many the imported state has, as far as that was taken in, and importedSize
	// that of those of which nothing else is known.
	imported     int32
	importedSize string
}

// sizeOf is what size the machine at a place was asked for; "": that is not known.
func (l *listing) sizeOf(place int) string {
	switch {
	case made(place, l.last):
		return l.last.NodeSize
	case int32(place) < l.imported:
		return l.importedSize
	}
	return ""
}

// hasLeft is true for a node of a machine that the last operation deleted.
func (l *listing) hasLeft(index int32, node *corev1.Node) bool {
	op := l.last
	return op != nil && op.Kind == clusterv1.OperationScaleDown && op.State == clusterv1.OperationSucceeded && op.EndedAt != nil &&
		index >= op.DesiredWorkers && node.CreationTimestamp.Before(op.EndedAt)
}

// listingOf is what is known of the array of workers. ksctl's own agent says nothing: then there
// are as many as there were, until the imported state says something new, and as the last
// operation left them.
func listingOf(said answer, c *clusterv1.KsctlCluster, status *clusterv1.KsctlAutoScalerStatus, within time.Duration, now time.Time) listing {
	l := listing{exact: !said.plain, last: status.Operation, imported: status.ImportedWorkers}
	for _, w := range said.workers {
		l.machines = append(l.machines, machine{index: int32(w.Index), size: w.Size, nodeName: w.Node})
	}
	if !said.plain {
		return l
	}
	count := status.Workers
	known, size := importedWorkers(c)
	l.importedSize = size
	if known >= 0 && known != l.imported && (known >= count || settledFor(l.last, within, now)) {
		count, l.imported = known, known
	}
	if op := l.last; atWork(op) && said.word.id == op.ID && said.word.state == agentSucceeded {
		// Its nodes come to be known, or to be gone, some time after it said so.
		l.last, count = op.DeepCopy(), op.DesiredWorkers
		l.last.State, l.last.EndedAt = clusterv1.OperationSucceeded, &metav1.Time{Time: now}
	}
	for i := range min(count, maxWorkers) {
		l.machines = append(l.machines, machine{index: i})
	}
	return l
}

// settledFor is true once whatever an operation made has had so much time to join. A state that
// is imported before may be older than it.
func settledFor(op *clusterv1.ScaleOperation, within time.Duration, now time.Time) bool {
	return op == nil || !atWork(op) && (op.EndedAt == nil || !now.Before(op.EndedAt.Add(within)))
}

// importedWorkers is how many workers the imported state has, -1 where there is none; and their size,
// where all are of one.
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
