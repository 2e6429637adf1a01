package autoscaler

import (
	"time"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

const (
	// gracefulTermination is spec.scaleDown.maxGracefulTermination when unset.
	gracefulTermination = 10 * time.Minute
	// evictionTime is for how long Cluster Autoscaler tries to evict the pods of a node, and what it
	// adds to the time that they have to end.
	evictionTime = 2*time.Minute + 30*time.Second
)

// askTime is how long after marking a node Cluster Autoscaler may still ask for its deletion: it
// moves the pods first.
func askTime(spec *clusterv1.KsctlAutoScalerSpec) time.Duration {
	grace := gracefulTermination
	if spec.ScaleDown != nil && spec.ScaleDown.MaxGracefulTermination != nil {
		grace = spec.ScaleDown.MaxGracefulTermination.Duration
	}
	return grace + evictionTime + wishTime
}

// released are the workers that Cluster Autoscaler has marked and that are used again, by their
// index: those whose deletion failed, and those whose nobody wants any more, as a commit has cancelled
// it. Cluster Autoscaler was told that they go, and takes off no mark of them before it starts anew.
// Next is when there may be another one. A mark that says no time is left alone.
func (p *plan) released(f *fleet, within time.Duration, now time.Time) (out map[int32]bool, next time.Time) {
	out = map[int32]bool{}
	for i := range f.machines {
		m := &f.machines[i]
		if m.node == nil {
			continue
		}
		at, ok := taintedAt(m.node)
		if !ok {
			continue
		}
		switch due := at.Add(within); {
		case p.failedAfter(at):
			out[m.index] = true
		case p.goes(i, m): // what ends that wakes us
		case !now.Before(due):
			out[m.index] = true
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	return out, next
}

// failedAfter is true if the last operation was a deletion that failed after a time, once it is known
// that the agent is not at it any more.
func (p *plan) failedAfter(at time.Time) bool {
	op := p.op
	return op != nil && op.Kind == clusterv1.OperationScaleDown && op.State == clusterv1.OperationFailed && !op.Unsettled && op.EndedAt != nil && at.Before(op.EndedAt.Time)
}

// goes is true for a machine at a place that the agent may be deleting, or that is of a pool of which
// machines are still to go.
func (p *plan) goes(place int, m *machine) bool {
	op := p.op
	if op != nil && op.Kind != clusterv1.OperationScaleUp && (atWork(op) || op.Unsettled) && int32(place) >= op.DesiredWorkers {
		return true
	}
	r := rowOf(p.rows, m.pool)
	return r != nil && r.change < 0
}
