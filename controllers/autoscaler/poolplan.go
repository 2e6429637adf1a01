package autoscaler

import (
	"strings"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// row is how a pool stands, in numbers that belong together.
type row struct {
	pool *clusterv1.WorkerPool
	// existing machines, as they were before the operation at work, and begun what that changes.
	existing, begun int32
	// change is what was asked for and has not begun, missing what could not be made.
	change, missing int32
	// floor is what minSize asks for beside that. It is worked out anew each time.
	floor int32
	// lost machines exist, have not joined in time and can't be deleted: nobody counts on them, and
	// nobody makes others in their place.
	lost int32
}

// target is how many machines the pool is to have.
func (r *row) target() int32 { return r.existing + r.begun + r.pending() + r.missing }

// pending is what is to be begun.
func (r *row) pending() int32 { return r.change + r.floor }

// rows are how the pools of a spec stand.
func rows(spec *clusterv1.KsctlAutoScalerSpec, status *clusterv1.KsctlAutoScalerStatus, f *fleet) []row {
	out := make([]row, 0, len(spec.Pools))
	for i := range spec.Pools {
		p := &spec.Pools[i]
		r := row{pool: p}
		if was := poolStatus(status, p.Name); was != nil {
			r.change = was.Change
			if was.Backoff != nil {
				r.missing = was.Backoff.Missing
			}
		}
		r.count(status.Operation, f)
		out = append(out, r)
	}
	return out
}

// count takes in which machines there are. While an operation is at work those that it makes or
// deletes come and go: they are counted as begun, whether that is done or not.
func (r *row) count(op *clusterv1.ScaleOperation, f *fleet) {
	r.existing, r.begun, r.lost = 0, 0, 0
	end := f.size()
	if atWork(op) && ofPool(op, r.pool) && op.Kind != clusterv1.OperationRecount {
		end = min(op.From, op.DesiredWorkers, end)
		r.existing = max(op.From-op.DesiredWorkers, 0)
		r.begun = op.DesiredWorkers - op.From - op.GivenUp
		if op.GivenUp > 0 { // who has joined since stays
			joined := joinedOf(op, f)
			r.begun = max(r.begun, joined)
			r.missing = min(r.missing, op.DesiredWorkers-op.From-joined)
		}
	}
	for i := range end {
		switch m := &f.machines[i]; {
		case m.pool != r.pool.Name:
		case m.lost:
			r.lost++
		default:
			r.existing++
		}
	}
}

// joinedOf is how many of the machines that an operation makes have joined.
func joinedOf(op *clusterv1.ScaleOperation, f *fleet) (n int32) {
	for i := op.From; i < min(op.DesiredWorkers, f.size()); i++ {
		if f.machines[i].node != nil {
			n++
		}
	}
	return n
}

// ofPool is true for an operation on a pool, which may have another name by now.
func ofPool(op *clusterv1.ScaleOperation, pool *clusterv1.WorkerPool) bool {
	return strings.EqualFold(op.NodeSize, pool.NodeSize)
}

// atWork is true for an operation that has not ended.
func atWork(op *clusterv1.ScaleOperation) bool {
	return op != nil && op.State != clusterv1.OperationSucceeded && op.State != clusterv1.OperationFailed
}

func poolStatus(status *clusterv1.KsctlAutoScalerStatus, name string) *clusterv1.WorkerPoolStatus {
	for i := range status.Pools {
		if status.Pools[i].Name == name {
			return &status.Pools[i]
		}
	}
	return nil
}

func rowOf(rows []row, pool string) *row {
	for i := range rows {
		if rows[i].pool.Name == pool {
			return &rows[i]
		}
	}
	return nil
}

// rowOfOperation is that of the pool that an operation is of; nil: it left the spec.
func rowOfOperation(rows []row, op *clusterv1.ScaleOperation) *row {
	for i := range rows {
		if ofPool(op, rows[i].pool) {
			return &rows[i]
		}
	}
	return nil
}
