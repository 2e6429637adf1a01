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
	size := f.fleet.size()
	switch {
	case said.state == agentRunning:
		op.State, op.Message = clusterv1.OperationRunning, said.message
		return
	case said.state == agentSucceeded && op.Kind == clusterv1.OperationScaleUp && size < op.DesiredWorkers,
		said.state == agentSucceeded && op.Kind == clusterv1.OperationScaleDown && size > op.DesiredWorkers:
		said.state, said.code = agentFailed, CodeNotDone
		said.message = fmt.Sprintf("the agent said that it was done, and the cluster has %d workers instead of %d", size, op.DesiredWorkers)
	}
	now := metav1.NewTime(f.now)
	op.EndedAt, op.Message = &now, said.message
	op.State = clusterv1.OperationSucceeded
	if said.state == agentFailed {
		op.State = clusterv1.OperationFailed
	}
	p.ended = op
	r := rowOf(p.rows, op.Pool)
	// The rows were as before it; from here on they are as it left them.
	for i := range p.rows {
		p.rows[i].existing = existing(p.rows[i].pool.Name, op, f.fleet)
	}
	if r == nil { // the pool left the spec meanwhile
		return
	}
	asked := op.DesiredWorkers - op.From
	r.change -= asked
	switch {
	case said.state != agentFailed && r.change >= 0:
		delete(p.backoffs, op.Pool)
	case said.state != agentFailed: // it took too long: who has joined meanwhile stays
		r.change = max(r.change, -unjoined(f.fleet, op.Pool))
	case op.Kind == clusterv1.OperationScaleUp:
		made := min(max(size-op.From, 0), asked)
		r.missing += asked - made
		p.fail(op.Pool, said, r.missing, f.now)
	default:
		p.fail(op.Pool, said, r.missing, f.now)
	}
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
	if !atWork(op) || op.Kind != clusterv1.OperationScaleUp || f.now.Before(op.StartedAt.Add(f.within)) {
		return
	}
	r := rowOf(p.rows, op.Pool)
	if r == nil || r.change < op.DesiredWorkers-op.From {
		return // it was said
	}
	missing := op.DesiredWorkers - op.From
	for i := op.From; i < min(op.DesiredWorkers, f.fleet.size()); i++ {
		if f.fleet.machines[i].node != nil {
			missing--
		}
	}
	if missing <= 0 {
		return
	}
	r.change, r.missing = r.change-missing, r.missing+missing
	p.fail(op.Pool, word{code: CodeSlow, message: "the agent is still making machines"}, r.missing, f.now)
}

// fail has a pool left alone for some time.
func (p *plan) fail(pool string, said word, missing int32, now time.Time) {
	b := &clusterv1.PoolBackoff{Code: said.code, Message: said.message, Failures: 1, Missing: missing}
	if was := p.backoffs[pool]; was != nil {
		b.Failures = was.Failures + 1
	}
	wait := maxBackoff
	if n := b.Failures - 1; n < 10 {
		wait = min(firstBackoff<<n, maxBackoff)
	}
	b.Until = metav1.NewTime(now.Add(wait))
	p.backoffs[pool] = b
}
