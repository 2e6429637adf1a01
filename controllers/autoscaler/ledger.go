package autoscaler

import (
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// row is how a pool stands, in numbers that belong together.
type row struct {
	pool *clusterv1.WorkerPool
	// existing machines: while an operation is at work, as they were before it.
	existing int32
	// change is what is asked for beside them, missing what could not be made.
	change, missing int32
}

// target is how many machines the pool is to have.
func (r row) target() int32 { return r.existing + r.change + r.missing }

// rows are how the pools of a spec stand.
func rows(spec *clusterv1.KsctlAutoScalerSpec, status *clusterv1.KsctlAutoScalerStatus, f *fleet) []row {
	out := make([]row, 0, len(spec.Pools))
	for i := range spec.Pools {
		p := &spec.Pools[i]
		r := row{pool: p, existing: existing(p.Name, status.Operation, f)}
		if was := poolStatus(status, p.Name); was != nil {
			r.change = max(was.Change, -r.existing) // what went otherwise is not to go once more
			if was.Backoff != nil {
				r.missing = was.Backoff.Missing
			}
		}
		out = append(out, r)
	}
	return out
}

// existing counts the machines of a pool. While an operation is at work they come and go, and
// what it is to change is counted as asked for until it ends.
func existing(pool string, op *clusterv1.ScaleOperation, f *fleet) (n int32) {
	upTo := f.size()
	if atWork(op) {
		upTo = min(op.From, op.DesiredWorkers)
		if op.Kind == clusterv1.OperationScaleDown && op.Pool == pool {
			n = op.From - op.DesiredWorkers
		}
	}
	for i := range f.machines {
		if int32(i) < upTo && f.machines[i].pool == pool {
			n++
		}
	}
	return n
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
