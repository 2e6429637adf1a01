package autoscaler

import (
	"fmt"
	"time"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// doubtTime is how long machines may take to join, and nodes to be seen as gone, after ksctl's own
// agent said that it failed. Nodes are taken for not ready after some 40 seconds.
const doubtTime = time.Minute

// doubt is how many workers there may be where ksctl's own agent failed: it does not say how far it
// came, and would forget those that are more than it is asked to make.
type doubt struct {
	least, most int32
	// until is when what has not joined is taken for what will not.
	until time.Time
}

// doubtOf is how much is not known after an operation; nil: all is.
func doubtOf(op *clusterv1.ScaleOperation, f facts) *doubt {
	if !f.plain || atWork(op) {
		return nil
	}
	joined := joinedEnd(f.fleet)
	if op == nil || op.State != clusterv1.OperationFailed || op.EndedAt == nil {
		return phantoms(f, joined)
	}
	d := &doubt{least: max(op.From, joined), most: op.DesiredWorkers, until: op.EndedAt.Add(doubtTime)}
	if op.Kind == clusterv1.OperationScaleDown {
		d.least, d.most = max(op.DesiredWorkers, joined), op.From
	}
	if op.Code == CodeNoAnswer { // it may still be at work
		d.until = op.EndedAt.Add(f.within)
	}
	if d.least < d.most {
		return d
	}
	// Those that it was to delete have their nodes: they may have no machines.
	for i := op.DesiredWorkers; i < min(op.From, f.fleet.size()); i++ {
		if f.now.Before(d.until) || !f.fleet.machines[i].ready() {
			return d
		}
	}
	return phantoms(f, joined)
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

// phantoms are the last machines where somebody else said that there are some, and none has joined
// in time.
func phantoms(f facts, joined int32) *doubt {
	last := f.fleet.size() - 1
	if last < joined || !f.late[f.fleet.machines[last].index] || f.fleet.machines[last].pool != "" {
		return nil
	}
	return &doubt{least: joined, most: last + 1, until: f.now}
}

// String says it to a person.
func (d *doubt) String() string {
	if d.least < d.most {
		return fmt.Sprintf("there are between %d and %d workers, and the agent does not say how many: if there still are at %s, those that have not joined are deleted", d.least, d.most, d.until.UTC().Format(time.RFC3339))
	}
	return "the agent failed to delete workers, and of those not all are ready: there may be no machines of them"
}

// clear is the operation that ends a doubt of how many there are, before which nothing else is begun:
// what has not joined is deleted, if it is there. nil: not yet.
func (p *plan) clear(f facts) *clusterv1.ScaleOperation {
	d := p.doubt
	// Machines that nobody counts on may go even where none is to be deleted otherwise.
	if f.now.Before(d.until) || f.mode == clusterv1.ScalingUpOnly && d.least < f.fleet.size() {
		return nil
	}
	op := p.begin(f, clusterv1.OperationScaleDown, d.most, d.least)
	if last := p.op; last != nil && last.State == clusterv1.OperationFailed {
		op.Pool, op.NodeSize = last.Pool, last.NodeSize
		if r := rowOfOperation(p.rows, last); r != nil && backsOff(p.backoffs[r.pool.Name], clusterv1.OperationScaleDown, f.now) {
			return nil
		}
	}
	for i := range p.rows {
		p.rows[i].count(op, f.fleet)
	}
	return op
}
