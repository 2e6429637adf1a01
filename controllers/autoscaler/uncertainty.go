package autoscaler

import (
	"fmt"
	"time"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

const (
	// settleTime is how long machines may take to join, and nodes to be deleted or become not
	// ready, after ksctl's own agent reported a failure.
	settleTime = time.Minute
	// recountInterval is the time after which a failed recount is retried.
	recountInterval = 5 * time.Minute
)

// uncertainty describes the possible numbers of workers after a failure of ksctl's own agent. The
// agent does not report how many workers it created or deleted, and it would forget the workers
// beyond the number in the next request.
type uncertainty struct {
	op                     *clusterv1.ScaleOperation
	minWorkers, maxWorkers int32
	// deadline is the time after which machines that have not joined are no longer expected to
	// join.
	deadline time.Time
	// suspect is the index of a worker that may have no machine, because its node is not ready; -1
	// if there is none. suspectHasNoNode is true if it has no node at all.
	suspect          int32
	suspectHasNoNode bool
	// blocker is why no recount is started; "" if one is.
	blocker string
}

// assessUncertainty returns what is uncertain after the last operation. If nothing is, it returns
// nil and marks the operation as settled.
func (p *scalingPlan) assessUncertainty() *uncertainty {
	op := p.op
	if op == nil || op.State != clusterv1.OperationFailed || op.EndedAt == nil {
		return nil
	}
	if p.ksctlAgent && op.Code == "" { // recorded by an earlier version, which did not set Code and Unsettled
		op.Code, op.Unsettled = clusterv1.CodeFailed, true
	}
	if op.Unsettled = op.Unsettled && p.ksctlAgent; !op.Unsettled {
		return nil
	}
	joined := joinedEnd(p.machines)
	d := &uncertainty{op: op, minWorkers: max(min(op.From, op.DesiredWorkers), joined),
		maxWorkers: max(op.From, op.DesiredWorkers), suspect: -1}
	if op.Kind == clusterv1.OperationScaleUp { // a worker that has joined before is not deleted for a missing node
		d.minWorkers = max(d.minWorkers, min(p.knownWorkers, d.maxWorkers))
	}
	d.deadline = op.EndedAt.Add(settleTime)
	switch {
	case op.Code == clusterv1.CodeNoAnswer: // the operation may still be in progress
		d.deadline = op.EndedAt.Add(p.joinTimeout)
	case op.Kind == clusterv1.OperationRecount:
		d.deadline = op.EndedAt.Add(recountInterval)
	}
	if d.minWorkers < d.maxWorkers {
		d.blocker = p.recountBlocker(d, joined)
		return d
	}
	for i := op.DesiredWorkers; op.Kind == clusterv1.OperationScaleDown && i < min(op.From, p.machines.size()); i++ {
		if m := &p.machines.list[i]; p.now.Before(d.deadline) || !m.ready() { // the machine may be deleted
			d.suspect, d.suspectHasNoNode = i, m.node == nil
			return d
		}
	}
	op.Unsettled = false
	return nil
}

// joinedEnd returns the position after the last machine that has joined.
func joinedEnd(f *machines) int32 {
	for i := f.size(); i > 0; i-- {
		if f.list[i-1].node != nil {
			return i
		}
	}
	return 0
}

// recountBlocker returns why machines that have not joined must not be deleted; "" if they may be.
func (p *scalingPlan) recountBlocker(d *uncertainty, joined int32) string {
	switch {
	case p.mode == clusterv1.ScalingOff:
		return "mode is Off"
	case p.mode == clusterv1.ScalingUpOnly && d.op.Kind == clusterv1.OperationScaleDown:
		return "mode is ScaleUpOnly"
	case joined < min(d.op.From, d.op.DesiredWorkers):
		return fmt.Sprintf("worker %d, which is not part of the operation, has no matching node", joined)
	case p.machines.size() > d.maxWorkers:
		return "the imported state has more workers"
	case p.machines.newestOtherNode.After(d.op.StartedAt.Time):
		return "a node has joined since, which may be one of them under another name"
	}
	return ""
}

// String describes the uncertainty for users.
func (d *uncertainty) String() string {
	if d.suspectHasNoNode {
		return fmt.Sprintf("the agent failed to delete workers, and worker %d, which is not the last one, has no "+
			"node: delete it and all workers after it with ksctl, then re-create the KsctlAutoScaler", d.suspect)
	}
	if d.suspect >= 0 {
		return fmt.Sprintf("the agent failed to delete worker %d, and its node is not confirmed to be ready: if the "+
			"machine is gone, delete the Node", d.suspect)
	}
	text := fmt.Sprintf("there are between %d and %d workers, because the agent failed and does not report how many",
		d.minWorkers, d.maxWorkers)
	if d.blocker != "" {
		return text + ": wait until all have joined, or delete the others manually: they are not deleted because " +
			d.blocker
	}
	return fmt.Sprintf("%s: machines that have not joined by %s are deleted", text,
		d.deadline.UTC().Format(time.RFC3339))
}

// recount returns the operation that resolves the uncertainty; nil if it is not possible or not
// due.
func (p *scalingPlan) recount() *clusterv1.ScaleOperation {
	d := p.uncertainty
	if d.suspect >= 0 || d.blocker != "" || p.now.Before(d.deadline) {
		return nil
	}
	op := p.newOperation(clusterv1.OperationRecount, d.maxWorkers, d.minWorkers)
	op.Pool, op.NodeSize = d.op.Pool, d.op.NodeSize
	return op
}

// awaitsJoin reports whether machines have not joined yet, or do not have the label of their pool
// yet. Until then only the last operation shows their size, because ksctl's own agent does not
// report it.
func (p *scalingPlan) awaitsJoin() bool {
	op := p.status.Operation
	for i := range p.machines.list {
		m := &p.machines.list[i]
		if !createdBy(i, op) || p.overdue[m.index] {
			continue
		}
		if m.node == nil || m.pool != "" && m.node.Labels[clusterv1.PoolLabel] == "" {
			return true
		}
	}
	return false
}

// unjoinedWorker returns why no machine may be created because ksctl's own agent may have a worker
// that has not joined; "" if there is none.
func (p *scalingPlan) unjoinedWorker() string {
	for i := range p.machines.list {
		m := &p.machines.list[i]
		switch {
		case m.node != nil || createdBy(i, p.status.Operation) && !p.overdue[m.index]:
		case session.IsInProgress(p.status.Operation) &&
			int32(i) >= min(p.status.Operation.From, p.status.Operation.DesiredWorkers):
		case int32(i) >= p.knownWorkers:
			return fmt.Sprintf("the imported state has %d workers, but worker %d has not joined: nothing is scaled "+
				"until it joins or another state is imported", p.machines.size(), m.index)
		default:
			return fmt.Sprintf("worker %d has no node, and the agent does not report whether its machine exists: "+
				"make it join, or delete it and all workers after it with ksctl and re-create the KsctlAutoScaler",
				m.index)
		}
	}
	return ""
}
