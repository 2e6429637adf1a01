package autoscaler

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

// applyReport applies the reported status to the operation in progress.
func (p *scalingPlan) applyReport() {
	op := p.op
	if p.reported.ID != op.ID {
		return // the agent does not know the operation yet
	}
	reported := p.reported
	if reported.Phase == session.Running {
		op.State, op.Message = clusterv1.OperationRunning, reported.Message
		return
	}
	if reported.Phase == session.Succeeded && !p.ksctlAgent {
		reported = verifySuccess(reported, op, p.machines)
	}
	now := metav1.NewTime(p.now)
	op.EndedAt, op.Message = &now, reported.Message
	op.State = clusterv1.OperationSucceeded
	if reported.Phase == session.Failed {
		op.State, op.Code, op.Unsettled = clusterv1.OperationFailed, reported.Code, p.ksctlAgent
	}
	p.ended = op
	// The numbers were those before the operation; from here on they include its result.
	for i := range p.pools {
		p.pools[i].countMachines(op, p.machines)
	}
	r := poolOfOperation(p.pools, op)
	switch {
	case r == nil: // the pool was removed from the spec meanwhile
	case op.Kind == clusterv1.OperationRecount: // it fulfills no request
	case reported.Phase == session.Failed && op.Kind == clusterv1.OperationScaleUp:
		created := max(p.machines.size()-op.From, 0)
		r.missing += max(op.DesiredWorkers-op.From-op.GivenUp-created, 0)
		p.recordFailure(r, op.Kind, reported)
		if reported.Code == clusterv1.CodeOtherSize {
			p.backoffs[r.pool.Name].From = op.From
		}
	case reported.Phase == session.Failed:
		p.recordFailure(r, op.Kind, reported)
	case op.GivenUp > 0: // it took too long: machines that have joined meanwhile are kept
		r.missing = min(r.missing, op.DesiredWorkers-op.From-joinedCount(op, p.machines))
		r.change -= min(op.GivenUp, unjoinedTail(p.machines, r.pool.Name))
	default:
		// A created machine may still not join.
		if b := p.backoffs[r.pool.Name]; b != nil && b.Operation == op.Kind && b.Code != clusterv1.CodeJoinTimeout {
			delete(p.backoffs, r.pool.Name)
		}
	}
}

// verifySuccess compares a reported success with the machines that the agent lists. It returns a
// failure if they contradict it.
func verifySuccess(reported session.OperationStatus, op *clusterv1.ScaleOperation,
	f *machines) session.OperationStatus {
	failed := func(code, format string, args ...any) session.OperationStatus {
		return session.OperationStatus{ID: reported.ID, Phase: session.Failed, Code: code,
			Message: fmt.Sprintf(format, args...)}
	}
	size := f.size()
	if op.Kind == clusterv1.OperationScaleUp && size < op.DesiredWorkers || op.Kind == clusterv1.OperationScaleDown &&
		size > op.DesiredWorkers {
		return failed(clusterv1.CodeNotDone, "the agent reported success, but the cluster has %d workers instead of %d",
			size, op.DesiredWorkers)
	}
	if op.Kind == clusterv1.OperationScaleDown {
		return reported
	}
	if others := otherSizes(op, f); len(others) > 0 {
		return failed(clusterv1.CodeOtherSize, "of %d requested machines of size %s, %d have size %q, which no pool "+
			"has: no machines are created for the pool until these are deleted or a pool has their size",
			op.DesiredWorkers-op.From, op.NodeSize, len(others), others[0])
	}
	return reported
}

// otherSizes returns the sizes of the machines that an operation created and that are in no pool.
func otherSizes(op *clusterv1.ScaleOperation, f *machines) (sizes []string) {
	for i := range f.list {
		if m := &f.list[i]; createdBy(i, op) && m.pool == "" {
			sizes = append(sizes, m.size)
		}
	}
	return sizes
}

// unjoinedTail returns the number of machines at the end of the array that are in a pool and have
// not joined.
func unjoinedTail(f *machines, pool string) (n int32) {
	for i := len(f.list) - 1; i >= 0 && f.list[i].pool == pool && f.list[i].node == nil; i-- {
		n++
	}
	return n
}

// giveUpSlow records machines that are still being created after joinTimeout as failed: otherwise
// Cluster Autoscaler would stop scaling the whole cluster. When the operation ends, they are
// deleted, unless they have joined by then.
func (p *scalingPlan) giveUpSlow() {
	op := p.op
	if !session.IsInProgress(op) || op.Kind != clusterv1.OperationScaleUp || op.GivenUp > 0 ||
		p.now.Before(waitStart(op).Add(p.joinTimeout)) {
		return
	}
	r := poolOfOperation(p.pools, op)
	if r == nil {
		return
	}
	unjoined := op.DesiredWorkers - op.From - joinedCount(op, p.machines)
	if unjoined <= 0 {
		return
	}
	op.GivenUp = unjoined
	r.inProgress -= unjoined
	r.missing += unjoined
	p.recordFailure(r, op.Kind,
		session.OperationStatus{Code: clusterv1.CodeSlow, Message: "the agent is still creating machines"})
}

// waitStart returns the time from which the join timeout of an operation's machines counts: Cluster
// Autoscaler may have requested them long before the operation began.
func waitStart(op *clusterv1.ScaleOperation) time.Time {
	if requested := op.RequestedAt; requested != nil && op.StartedAt.Sub(requested.Time) < time.Hour {
		return requested.Time
	}
	return op.StartedAt.Time
}

// requestedAt returns when Cluster Autoscaler requested the machines to create for a pool; nil if
// it requested none.
func (p *scalingPlan) requestedAt(r *poolPlan) *metav1.Time {
	last := p.lastScales[r.pool.Name]
	if was := poolStatus(p.status, r.pool.Name); last == nil && was != nil {
		last = was.LastScale
	}
	if r.change <= 0 || last == nil || last.To <= last.From {
		return nil
	}
	return last.Time.DeepCopy()
}

// recordFailure starts a backoff of a pool, or extends it.
func (p *scalingPlan) recordFailure(r *poolPlan, kind clusterv1.OperationKind, result session.OperationStatus) {
	b := &clusterv1.PoolBackoff{Operation: kind, Code: result.Code, Message: result.Message, Failures: 1,
		Missing: r.missing}
	if was := p.backoffs[r.pool.Name]; was != nil && was.Operation == kind {
		b.Failures = was.Failures + 1
	}
	wait := maxBackoff
	if n := b.Failures - 1; n < 10 {
		wait = min(initialBackoff<<n, maxBackoff)
	}
	b.Until = metav1.NewTime(p.now.Add(wait))
	p.backoffs[r.pool.Name] = b
}

// deleteOverdue deletes the last machines if they have not joined in time, and records them as
// failed for Cluster Autoscaler.
func (p *scalingPlan) deleteOverdue() {
	pool, n := p.overdueTail()
	r := findPool(p.pools, pool)
	if p.mode == clusterv1.ScalingOff || n == 0 || r == nil || r.change < 0 {
		return
	}
	message := "1 machine did not join the cluster in time and is deleted"
	if n > 1 {
		message = fmt.Sprintf("%d machines did not join the cluster in time and are deleted", n)
	}
	r.missing += n + r.change // new requests also have to wait for the end of the backoff
	p.recordFailure(r, clusterv1.OperationScaleUp,
		session.OperationStatus{Code: clusterv1.CodeJoinTimeout, Message: message})
	p.recordScale(r, r.existing, r.existing-n, fmt.Sprintf("did not join in time: %d %s", n, plural("machine", n)),
		p.now)
	r.change, r.minSizeDeficit = -n, 0
}

// overdueTail returns the pool of the last machines that are overdue, and their number.
func (p *scalingPlan) overdueTail() (pool string, n int32) {
	for i := p.machines.size() - 1; i >= 0; i-- {
		m := &p.machines.list[i]
		if !p.overdue[m.index] || m.lost || n > 0 && m.pool != pool {
			break
		}
		pool, n = m.pool, n+1
	}
	return pool, n
}
