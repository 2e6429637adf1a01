package autoscaler

import (
	"fmt"
	"time"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

const (
	// doubtTime is how long machines may take to join, and nodes to be seen as gone or not ready,
	// after ksctl's own agent said that it failed.
	doubtTime = time.Minute
	// recountInterval is how soon a recount that failed is tried again.
	recountInterval = 5 * time.Minute
)

// doubt is how many workers there may be where ksctl's own agent failed: it does not say how far it
// came, and would forget those that are more than it is asked to make.
type doubt struct {
	op          *clusterv1.ScaleOperation
	least, most int32
	// until is when what has not joined is taken for what will not.
	until time.Time
	// idle is the worker that has a node which is not ready, and maybe no machine; -1: there is none.
	// It is bare if it has no node at all.
	idle int32
	bare bool
	// why nothing is done about it; "": it is.
	why string
}

// settleDoubt is how much is not known after an operation; nil: all is, which is then written down.
func (p *plan) settleDoubt(f facts) *doubt {
	op := p.op
	if op == nil || op.State != clusterv1.OperationFailed || op.EndedAt == nil {
		return nil
	}
	if f.plain && op.Code == "" { // it failed under an earlier version, which did not ask
		op.Code, op.Unsettled = CodeFailed, true
	}
	if op.Unsettled = op.Unsettled && f.plain; !op.Unsettled {
		return nil
	}
	joined := joinedEnd(f.fleet)
	d := &doubt{op: op, least: max(min(op.From, op.DesiredWorkers), joined), most: max(op.From, op.DesiredWorkers), idle: -1}
	if op.Kind == clusterv1.OperationScaleUp { // what has joined once is not deleted for having no node now
		d.least = max(d.least, min(f.counted, d.most))
	}
	d.until = op.EndedAt.Add(doubtTime)
	switch {
	case op.Code == CodeNoAnswer: // it may still be at work
		d.until = op.EndedAt.Add(f.within)
	case op.Kind == clusterv1.OperationRecount:
		d.until = op.EndedAt.Add(recountInterval)
	}
	if d.least < d.most {
		d.why = f.noRecount(d, joined)
		return d
	}
	for i := op.DesiredWorkers; op.Kind == clusterv1.OperationScaleDown && i < min(op.From, f.fleet.size()); i++ {
		if m := &f.fleet.machines[i]; f.now.Before(d.until) || !m.ready() { // it may have no machine
			d.idle, d.bare = i, m.node == nil
			return d
		}
	}
	op.Unsettled = false
	return nil
}

// joinedEnd is the place behind the last machine that has joined.
func joinedEnd(f *fleet) int32 {
	for i := f.size(); i > 0; i-- {
		if f.machines[i-1].node != nil {
			return i
		}
	}
	return 0
}

// noRecount is why what has not joined is not deleted; "": it may be.
func (f facts) noRecount(d *doubt, joined int32) string {
	switch {
	case f.mode == clusterv1.ScalingOff:
		return "mode is Off"
	case f.mode == clusterv1.ScalingUpOnly && d.op.Kind == clusterv1.OperationScaleDown:
		return "mode is ScaleUpOnly"
	case joined < min(d.op.From, d.op.DesiredWorkers):
		return fmt.Sprintf("worker %d, which is not of the operation, has no node that is known as its own", joined)
	case f.fleet.size() > d.most:
		return "the imported state has more"
	case f.fleet.newestOther.After(d.op.StartedAt.Time):
		return "a node has joined since that may be one of them, by another name"
	}
	return ""
}

// String says it to a person.
func (d *doubt) String() string {
	if d.bare {
		return fmt.Sprintf("the agent failed to delete workers, and worker %d, which is not the last one, has no node: delete it, and those behind it, with ksctl, and make this object anew", d.idle)
	}
	if d.idle >= 0 {
		return fmt.Sprintf("the agent failed to delete worker %d, and its node is not ready, or was not seen to be since: where its machine is gone, delete the Node", d.idle)
	}
	text := fmt.Sprintf("there are between %d and %d workers, and the agent, which failed, does not say how many", d.least, d.most)
	if d.why != "" {
		return text + ": they have to join, or to be deleted by hand, as " + d.why
	}
	return fmt.Sprintf("%s: those that have not joined at %s are deleted", text, d.until.UTC().Format(time.RFC3339))
}

// recount is the operation that ends a doubt; nil: none, or not yet.
func (p *plan) recount(f facts) *clusterv1.ScaleOperation {
	d := p.doubt
	if d.idle >= 0 || d.why != "" || f.now.Before(d.until) {
		return nil
	}
	op := p.begin(f, clusterv1.OperationRecount, d.most, d.least)
	op.Pool, op.NodeSize = d.op.Pool, d.op.NodeSize
	return op
}

// joining is true while machines have yet to join, or to get the labels of their pool: ksctl's own
// agent does not say of what size they are, which only the last operation tells.
func (f facts) joining() bool {
	op := f.status.Operation
	for i := range f.fleet.machines {
		m := &f.fleet.machines[i]
		if !made(i, op) || f.late[m.index] {
			continue
		}
		if m.node == nil || m.pool != "" && m.node.Labels[clusterv1.PoolLabel] == "" {
			return true
		}
	}
	return false
}

// absent is why nothing is made of what ksctl's own agent may have and nobody sees; "": there is
// nothing of that.
func (f facts) absent() string {
	for i := range f.fleet.machines {
		m := &f.fleet.machines[i]
		switch {
		case m.node != nil || made(i, f.status.Operation) && !f.late[m.index]:
		case atWork(f.status.Operation) && int32(i) >= min(f.status.Operation.From, f.status.Operation.DesiredWorkers):
		case int32(i) >= f.counted:
			return fmt.Sprintf("the imported state has %d workers, and worker %d has not joined: nothing is scaled until it has, or another state is imported", f.fleet.size(), m.index)
		default:
			return fmt.Sprintf("worker %d has no node, and the agent does not say whether there is a machine of it: have it join, or delete it, and those behind it, with ksctl, and make this object anew", m.index)
		}
	}
	return ""
}
