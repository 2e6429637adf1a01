package autoscaler

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// applyChange adds a change that Cluster Autoscaler requested to the plan.
func (p *scalingPlan) applyChange(c nodegroup.Change, now time.Time) {
	r := findPool(p.pools, c.Pool)
	if r == nil {
		return
	}
	from := r.target()
	r.missing = max(r.missing-c.ClearFailed, 0)
	// The requested target includes the deficit for minSize.
	r.change, r.minSizeDeficit = c.Target-r.existing-r.inProgress-r.missing, 0
	if b := p.backoffs[c.Pool]; b != nil {
		b.Missing = r.missing
	}
	p.recordScale(r, from, r.target(), c.Reason, now)
}

// recordScale sets the last change of a pool.
func (p *scalingPlan) recordScale(r *poolPlan, from, to int32, reason string, now time.Time) {
	if p.lastScales == nil {
		p.lastScales = map[string]*clusterv1.PoolScale{}
	}
	p.lastScales[r.pool.Name] = &clusterv1.PoolScale{Time: metav1.NewTime(now), From: from, To: to, Reason: reason}
}

// writeStatus writes the plan into the status of the object.
func (p *scalingPlan) writeStatus(obj *clusterv1.KsctlAutoScaler, seen *observation) {
	status := &obj.Status
	lines := make([]clusterv1.WorkerPoolStatus, 0, len(p.pools))
	for _, r := range p.pools {
		line := clusterv1.WorkerPoolStatus{Name: r.pool.Name, NodeGroupID: groupID(obj, r.pool.Name),
			Target: r.target(), Change: r.change,
			Creating: max(r.inProgress, 0) + max(r.pending(), 0), Deleting: max(-r.inProgress, 0) + max(-r.change, 0),
			Backoff: p.backoffs[r.pool.Name], LastScale: p.lastScales[r.pool.Name]}
		_, line.TemplateSource = poolTemplate(seen, r.pool)
		for i := range seen.machines.list {
			m := &seen.machines.list[i]
			switch {
			case m.pool != r.pool.Name || m.lost:
			case m.node == nil && int32(i) < firstCreating(p.op, &seen.machines):
				line.Creating++
			case m.ready():
				line.Registered, line.Ready = line.Registered+1, line.Ready+1
			case m.node != nil:
				line.Registered++
			}
		}
		if was := poolStatus(status, r.pool.Name); line.LastScale == nil && was != nil {
			line.LastScale = was.LastScale
		}
		lines = append(lines, line)
	}
	status.Pools, status.Operation = lines, p.op
	if status.Workers = seen.machines.size(); seen.ksctlAgent {
		status.Workers = max(seen.knownWorkers, joinedEnd(&seen.machines))
	}
	// From here on the imported state is older than the known number of workers.
	if seen.importedWorkers >= 0 &&
		(!seen.ksctlAgent || p.ended != nil && p.ended.State == clusterv1.OperationSucceeded) {
		status.ImportedWorkers = &seen.importedWorkers
	}
	status.WorkerSizes = workerSizes(seen)
	status.UnmanagedWorkers = seen.machines.unmanaged(0)
}

// workerSizes returns the known sizes of the machines of ksctl's own agent.
func workerSizes(seen *observation) (out []clusterv1.WorkerSize) {
	for i := range seen.machines.list {
		if m := &seen.machines.list[i]; seen.ksctlAgent && m.size != "" {
			out = append(out, clusterv1.WorkerSize{Index: m.index, NodeSize: m.size})
		}
	}
	return out
}

// firstCreating returns the position of the first machine that the operation in progress creates.
// These machines are counted as requested.
func firstCreating(op *clusterv1.ScaleOperation, f *machines) int32 {
	if session.IsInProgress(op) && op.Kind == clusterv1.OperationScaleUp {
		return op.From
	}
	return f.size()
}

// describeOperation describes an operation for users.
func describeOperation(op *clusterv1.ScaleOperation) string {
	n := op.DesiredWorkers - op.From
	action := "creating"
	if op.Kind == clusterv1.OperationScaleDown {
		action, n = "deleting", -n
	}
	if op.Kind == clusterv1.OperationRecount {
		return fmt.Sprintf("deleting machines that have not joined: from at most %d workers to %d", op.From,
			op.DesiredWorkers)
	}
	return fmt.Sprintf("%s %d %s of pool %s: from %d workers to %d", action, n, plural("machine", n), op.Pool, op.From,
		op.DesiredWorkers)
}

func plural(noun string, n int32) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
