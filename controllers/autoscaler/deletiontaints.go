package autoscaler

import (
	"time"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

const (
	// defaultGracefulTermination is the default of spec.scaleDown.maxGracefulTermination.
	defaultGracefulTermination = 10 * time.Minute
	// evictionTime is how long Cluster Autoscaler retries the eviction of a node's pods, plus what
	// it adds to their termination grace period.
	evictionTime = 2*time.Minute + 30*time.Second
)

// deletionRequestTimeout returns how long after it tainted a node Cluster Autoscaler may still
// request its deletion: it evicts the pods first.
func deletionRequestTimeout(spec *clusterv1.KsctlAutoScalerSpec) time.Duration {
	grace := defaultGracefulTermination
	if spec.ScaleDown != nil && spec.ScaleDown.MaxGracefulTermination != nil {
		grace = spec.ScaleDown.MaxGracefulTermination.Duration
	}
	return grace + evictionTime + deletionTimeout
}

// staleTaints returns the indexes of the workers whose deletion taint must be removed, because they
// are in use again: their deletion failed, or a commit canceled it. Cluster Autoscaler assumes that
// they are deleted, and only removes their taint when it is restarted. next is the earliest time at
// which another taint may become stale. Taints whose value is not a time are kept.
func (p *scalingPlan) staleTaints(f *machines, timeout time.Duration,
	now time.Time) (out map[int32]bool, next time.Time) {
	out = map[int32]bool{}
	for i := range f.list {
		m := &f.list[i]
		if m.node == nil {
			continue
		}
		at, ok := taintedAt(m.node)
		if !ok {
			continue
		}
		switch due := at.Add(timeout); {
		case p.deletionFailedAfter(at):
			out[m.index] = true
		case p.deletionPending(i, m): // its end enqueues the object
		case !now.Before(due):
			out[m.index] = true
		default:
			next = earliest(next, due)
		}
	}
	return out, next
}

// deletionFailedAfter reports whether the last operation was a deletion that failed after a time.
// It returns false while the agent may still be deleting.
func (p *scalingPlan) deletionFailedAfter(at time.Time) bool {
	op := p.op
	return op != nil && op.Kind == clusterv1.OperationScaleDown && op.State == clusterv1.OperationFailed &&
		!op.Unsettled && op.EndedAt != nil && at.Before(op.EndedAt.Time)
}

// deletionPending reports whether the agent may be deleting the machine at a position, or whether a
// deletion is requested for its pool.
func (p *scalingPlan) deletionPending(position int, m *machine) bool {
	op := p.op
	if op != nil && op.Kind != clusterv1.OperationScaleUp && (session.IsInProgress(op) || op.Unsettled) &&
		int32(position) >= op.DesiredWorkers {
		return true
	}
	r := findPool(p.pools, m.pool)
	return r != nil && r.change < 0
}
