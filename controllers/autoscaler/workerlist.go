package autoscaler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

// workerRole is the role of worker pools in the facts of a cluster.
const workerRole clusterv1.PoolRole = "Worker"

// workerList is the known part of the array of workers.
type workerList struct {
	// machines are ordered by index. Their size is "" if it is unknown.
	machines []machine
	// complete is true if there are no other machines: then the node of any other worker is
	// orphaned.
	complete bool
	// lastOperation shows what cannot be listed, if the list is not complete.
	lastOperation *clusterv1.ScaleOperation
	// sizes are the last known sizes of machines, by index: most nodes have no label with it.
	sizes map[int32]string
	// knownWorkers is the number of workers that is known without the imported state.
	knownWorkers int32
	// importedWorkers is the number of workers in the imported state; -1 if there is none.
	// importedSize is their size, for workers whose size is not known otherwise.
	importedWorkers int32
	importedSize    string
}

// wasDeleted reports whether the last operation deleted the machine of a node.
func (l *workerList) wasDeleted(index int32, node *corev1.Node) bool {
	op := l.lastOperation
	return op != nil && op.Kind != clusterv1.OperationScaleUp && op.State == clusterv1.OperationSucceeded &&
		op.EndedAt != nil &&
		index >= op.DesiredWorkers && !node.CreationTimestamp.After(op.EndedAt.Time)
}

// newWorkerList returns what is known of the array of workers. ksctl's own agent cannot list them:
// then their number is the one after the last operation, or the one in the imported state if that
// is higher. A lower number in the imported state may be outdated.
func newWorkerList(report session.Report, c *clusterv1.KsctlCluster, status *clusterv1.KsctlAutoScalerStatus,
	now time.Time) workerList {
	l := workerList{complete: !report.KsctlAgent, lastOperation: status.Operation, knownWorkers: status.Workers}
	l.importedWorkers, l.importedSize = importedWorkers(c)
	for _, w := range report.Workers {
		l.machines = append(l.machines, machine{index: int32(w.Index), size: w.Size, nodeName: w.Node})
	}
	if !report.KsctlAgent {
		return l
	}
	if op := l.lastOperation; session.IsInProgress(op) && report.Operation.ID == op.ID &&
		report.Operation.Phase == session.Succeeded {
		// The changes of its nodes are observed some time after the agent reports success.
		l.lastOperation, l.knownWorkers = op.DeepCopy(), op.DesiredWorkers
		l.lastOperation.State, l.lastOperation.EndedAt = clusterv1.OperationSucceeded,
			&metav1.Time{Time: now.Truncate(time.Second)}
	}
	l.sizes = map[int32]string{}
	for _, w := range status.WorkerSizes {
		l.sizes[w.Index] = w.NodeSize
	}
	count := l.knownWorkers
	// An operation that has just succeeded is newer than the imported state.
	if seen := status.ImportedWorkers; l.lastOperation == status.Operation &&
		(seen == nil || *seen != l.importedWorkers) {
		count = max(count, l.importedWorkers)
	}
	for i := range min(count, session.MaxWorkers) {
		l.machines = append(l.machines, machine{index: i})
	}
	return l
}

// importedWorkers returns the number of workers in the imported state, -1 if there is none, and
// their size if all have the same one.
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

// assignPool sets the pool and size of a machine whose size the agent does not report. It takes the
// pool in the label of the node, else the first pool with one of these sizes: the node's instance
// type, the last known size, the size in the last operation, the size in the imported state. The
// instance type may not be a size of the cloud: in k3s it is "k3s".
func (l *workerList) assignPool(m *machine, position int, pools []clusterv1.WorkerPool) {
	sizes := make([]string, 0, 4)
	if m.node != nil {
		if p := poolByName(pools, m.node.Labels[clusterv1.PoolLabel]); p != nil {
			m.size, m.pool = p.NodeSize, p.Name
			return
		}
		sizes = append(sizes, m.node.Labels[corev1.LabelInstanceTypeStable])
	}
	m.size = l.sizes[m.index] // kept in case its pool is added to the spec again
	sizes = append(sizes, m.size)
	if op := l.lastOperation; op != nil && op.Kind != clusterv1.OperationScaleDown &&
		int32(position) >= min(op.From, op.DesiredWorkers) && int32(position) < max(op.From, op.DesiredWorkers) {
		sizes = append(sizes, op.NodeSize)
	}
	if int32(position) < l.importedWorkers {
		sizes = append(sizes, l.importedSize)
	}
	for _, size := range sizes {
		if p := poolBySize(pools, size); p != nil {
			m.size, m.pool = size, p.Name
			return
		}
	}
}
