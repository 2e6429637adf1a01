package autoscaler

import (
	"strings"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

// poolPlan holds the numbers of machines of one pool, from which its target follows.
type poolPlan struct {
	pool *clusterv1.WorkerPool
	// existing is the number of machines before the operation in progress, inProgress the change
	// that this operation makes.
	existing, inProgress int32
	// change is the requested change that has not begun. missing is the number of machines that
	// could not be created.
	change, missing int32
	// minSizeDeficit is the number of machines that the pool lacks for minSize, beyond change. It
	// is computed in each reconcile.
	minSizeDeficit int32
	// lost is the number of machines that exist, have not joined in time and cannot be deleted.
	// They are not part of the target, but are not replaced either.
	lost int32
}

// target returns the desired number of machines.
func (r *poolPlan) target() int32 { return r.existing + r.inProgress + r.pending() + r.missing }

// pending returns the change that has not begun.
func (r *poolPlan) pending() int32 { return r.change + r.minSizeDeficit }

// newPoolPlans returns the current numbers of the pools of a spec.
func newPoolPlans(spec *clusterv1.KsctlAutoScalerSpec, status *clusterv1.KsctlAutoScalerStatus,
	f *machines) []poolPlan {
	out := make([]poolPlan, 0, len(spec.Pools))
	for i := range spec.Pools {
		p := &spec.Pools[i]
		r := poolPlan{pool: p}
		if was := poolStatus(status, p.Name); was != nil {
			r.change = was.Change
			if was.Backoff != nil {
				r.missing = was.Backoff.Missing
			}
		}
		r.countMachines(status.Operation, f)
		out = append(out, r)
	}
	return out
}

// countMachines sets existing, inProgress and lost. The machines that an operation in progress
// creates or deletes are counted in inProgress, whether they exist or not.
func (r *poolPlan) countMachines(op *clusterv1.ScaleOperation, f *machines) {
	r.existing, r.inProgress, r.lost = 0, 0, 0
	end := f.size()
	if session.IsInProgress(op) && isOfPool(op, r.pool) && op.Kind != clusterv1.OperationRecount {
		end = min(op.From, op.DesiredWorkers, end)
		r.existing = max(op.From-op.DesiredWorkers, 0)
		r.inProgress = op.DesiredWorkers - op.From - op.GivenUp
		if op.GivenUp > 0 { // machines that have joined since are kept
			joined := joinedCount(op, f)
			r.inProgress = max(r.inProgress, joined)
			r.missing = min(r.missing, op.DesiredWorkers-op.From-joined)
		}
	}
	for i := range end {
		switch m := &f.list[i]; {
		case m.pool != r.pool.Name:
		case m.lost:
			r.lost++
		default:
			r.existing++
		}
	}
}

// joinedCount returns how many of the machines that an operation creates have joined.
func joinedCount(op *clusterv1.ScaleOperation, f *machines) (n int32) {
	for i := op.From; i < min(op.DesiredWorkers, f.size()); i++ {
		if f.list[i].node != nil {
			n++
		}
	}
	return n
}

// isOfPool reports whether an operation is of a pool. It compares the sizes, because the pool may
// have been renamed since.
func isOfPool(op *clusterv1.ScaleOperation, pool *clusterv1.WorkerPool) bool {
	return strings.EqualFold(op.NodeSize, pool.NodeSize)
}

func poolStatus(status *clusterv1.KsctlAutoScalerStatus, name string) *clusterv1.WorkerPoolStatus {
	for i := range status.Pools {
		if status.Pools[i].Name == name {
			return &status.Pools[i]
		}
	}
	return nil
}

func findPool(pools []poolPlan, pool string) *poolPlan {
	for i := range pools {
		if pools[i].pool.Name == pool {
			return &pools[i]
		}
	}
	return nil
}

// poolOfOperation returns the plan of the pool of an operation; nil if the pool is no longer in the
// spec.
func poolOfOperation(pools []poolPlan, op *clusterv1.ScaleOperation) *poolPlan {
	for i := range pools {
		if isOfPool(op, pools[i].pool) {
			return &pools[i]
		}
	}
	return nil
}
