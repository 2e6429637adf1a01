package autoscaler

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// settle takes in what the agent says of the operation at work.
func (p *plan) settle(f facts) {
	op := p.op
	if f.word.id != op.ID {
		return // it does not know of it yet
	}
	said := f.word
	if said.state == agentRunning {
		op.State, op.Message = clusterv1.OperationRunning, said.message
		return
	}
	if said.state == agentSucceeded && !f.plain {
		said = examine(said, op, f.fleet)
	}
	now := metav1.NewTime(f.now)
	op.EndedAt, op.Message = &now, said.message
	op.State = clusterv1.OperationSucceeded
	if said.state == agentFailed {
		op.State, op.Code, op.Unsettled = clusterv1.OperationFailed, said.code, f.plain
	}
	p.ended = op
	// The rows were as before it; from here on they are as it left them.
	for i := range p.rows {
		p.rows[i].count(op, f.fleet)
	}
	r := rowOfOperation(p.rows, op)
	switch {
	case r == nil: // the pool left the spec meanwhile
	case op.Kind == clusterv1.OperationRecount: // nobody asked for it
	case said.state == agentFailed && op.Kind == clusterv1.OperationScaleUp:
		made := max(f.fleet.size()-op.From, 0)
		r.missing += max(op.DesiredWorkers-op.From-op.GivenUp-made, 0)
		p.fail(r, op.Kind, said, f.now)
		if said.code == CodeOtherSize {
			p.backoffs[r.pool.Name].From = op.From
		}
	case said.state == agentFailed:
		p.fail(r, op.Kind, said, f.now)
	case op.GivenUp > 0: // it took too long: who has joined meanwhile stays
		r.missing = min(r.missing, op.DesiredWorkers-op.From-joinedOf(op, f.fleet))
		r.change -= min(op.GivenUp, unjoined(f.fleet, r.pool.Name))
	default:
		// That a machine was made does not say that it joins.
		if b := p.backoffs[r.pool.Name]; b != nil && b.Operation == op.Kind && b.Code != CodeJoinTimeout {
			delete(p.backoffs, r.pool.Name)
		}
	}
}

// examine compares what the agent says it did with the machines that it lists.
func examine(said word, op *clusterv1.ScaleOperation, f *fleet) word {
	failed := func(code, format string, args ...any) word {
		return word{id: said.id, state: agentFailed, code: code, message: fmt.Sprintf(format, args...)}
	}
	size := f.size()
	if op.Kind == clusterv1.OperationScaleUp && size < op.DesiredWorkers || op.Kind == clusterv1.OperationScaleDown && size > op.DesiredWorkers {
		return failed(CodeNotDone, "the agent said that it was done, and the cluster has %d workers instead of %d", size, op.DesiredWorkers)
	}
	if op.Kind == clusterv1.OperationScaleDown {
		return said
	}
	if others := otherSizes(op, f); len(others) > 0 {
		return failed(CodeOtherSize, "%d machines of size %s were asked for, and there are %d of size %q, which is no pool's: nothing more is made for the pool until they are deleted, or of a pool",
			op.DesiredWorkers-op.From, op.NodeSize, len(others), others[0])
	}
	return said
}

// otherSizes are those of machines that an operation made and that are of no pool.
func otherSizes(op *clusterv1.ScaleOperation, f *fleet) (sizes []string) {
	for i := range f.machines {
		if m := &f.machines[i]; made(i, op) && m.pool == "" {
			sizes = append(sizes, m.size)
		}
	}
	return sizes
}

// unjoined counts the last machines of the array, as far as they are of a pool and have not joined.
func unjoined(f *fleet, pool string) (n int32) {
	for i := len(f.machines) - 1; i >= 0 && f.machines[i].pool == pool && f.machines[i].node == nil; i-- {
		n++
	}
	return n
}

// overdue says of machines that are still being made that they could not be had: Cluster Autoscaler
// would stop scaling the whole cluster for them. When they come after all they are deleted, unless
// they have joined by then.
func (p *plan) overdue(f facts) {
	op := p.op
	if !atWork(op) || op.Kind != clusterv1.OperationScaleUp || op.GivenUp > 0 || f.now.Before(askedAt(op).Add(f.within)) {
		return
	}
	r := rowOfOperation(p.rows, op)
	if r == nil {
		return
	}
	late := op.DesiredWorkers - op.From - joinedOf(op, f.fleet)
	if late <= 0 {
		return
	}
	op.GivenUp = late
	r.begun -= late
	r.missing += late
	p.fail(r, op.Kind, word{code: CodeSlow, message: "the agent is still making machines"}, f.now)
}

// askedAt is since when the machines of an operation are waited for: Cluster Autoscaler may have
// asked for them long before they were begun.
func askedAt(op *clusterv1.ScaleOperation) time.Time {
	if asked := op.RequestedAt; asked != nil && op.StartedAt.Sub(asked.Time) < time.Hour {
		return asked.Time
	}
	return op.StartedAt.Time
}

// requestedAt is when Cluster Autoscaler asked for what is to be made for a pool; nil: it did not.
func (p *plan) requestedAt(f facts, r *row) *metav1.Time {
	last := p.scaled[r.pool.Name]
	if was := poolStatus(f.status, r.pool.Name); last == nil && was != nil {
		last = was.LastScale
	}
	if r.change <= 0 || last == nil || last.To <= last.From {
		return nil
	}
	return last.Time.DeepCopy()
}

// fail has a pool left alone for some time.
func (p *plan) fail(r *row, kind clusterv1.OperationKind, said word, now time.Time) {
	b := &clusterv1.PoolBackoff{Operation: kind, Code: said.code, Message: said.message, Failures: 1, Missing: r.missing}
	if was := p.backoffs[r.pool.Name]; was != nil && was.Operation == kind {
		b.Failures = was.Failures + 1
	}
	wait := maxBackoff
	if n := b.Failures - 1; n < 10 {
		wait = min(firstBackoff<<n, maxBackoff)
	}
	b.Until = metav1.NewTime(now.Add(wait))
	p.backoffs[r.pool.Name] = b
}
