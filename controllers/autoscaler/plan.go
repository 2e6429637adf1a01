package autoscaler

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

const (
	// firstBackoff is how long nothing is made for a pool after that failed; twice as long
	// after each further time, up to maxBackoff.
	firstBackoff = time.Minute
	maxBackoff   = 30 * time.Minute
	// backoffMemory is how long failures count after the back-off has ended.
	backoffMemory = time.Hour
)

// facts are what a plan follows from.
type facts struct {
	// mode is that of the spec, or Off while it is suspended or deleted.
	mode   clusterv1.ScalingMode
	spec   *clusterv1.KsctlAutoScalerSpec
	status *clusterv1.KsctlAutoScalerStatus
	fleet  *fleet
	word   word
	// late are machines that have not joined in time, by their index; within is that time.
	late   map[int32]bool
	within time.Duration
	// uid of the object, and the time.
	uid string
	now time.Time
}

// plan is what becomes of the pools.
type plan struct {
	rows     []row
	backoffs map[string]*clusterv1.PoolBackoff
	// op is the operation that is at work, or ended last; ended is one that has just ended.
	op, ended *clusterv1.ScaleOperation
	// scaled are the pools of which Cluster Autoscaler asked for something.
	scaled map[string]*clusterv1.PoolScale
	// cancelled says of pools what is not done any more, and why.
	cancelled []string
}

// newPlan takes in what the agent said of the operation at work, and what the spec says by now.
// What is asked for is added to its rows, before choose. It is a pure function of the facts.
func newPlan(f facts) *plan {
	p := &plan{rows: rows(f.spec, f.status, f.fleet), backoffs: map[string]*clusterv1.PoolBackoff{}, op: f.status.Operation.DeepCopy()}
	for _, r := range p.rows {
		if was := poolStatus(f.status, r.pool.Name); was != nil {
			p.backoffs[r.pool.Name] = was.Backoff.DeepCopy()
		}
	}
	if atWork(p.op) {
		p.settle(f)
		p.overdue(f)
	}
	for i := range p.rows {
		p.bound(&p.rows[i], f)
	}
	return p
}

// choose is the operation that is due, when none is at work.
func (p *plan) choose(f facts) {
	if atWork(p.op) {
		return
	}
	p.dismissLate(f)
	if op := p.next(f); op != nil {
		p.op = op
	}
}

// bound keeps what is asked for within what the spec allows by now.
func (p *plan) bound(r *row, f facts) {
	name := r.pool.Name
	if b := p.backoffs[name]; b != nil && !f.now.Before(b.Until.Time) {
		b.Missing, r.missing = 0, 0 // it may be asked for again
		if f.now.After(b.Until.Add(backoffMemory)) {
			delete(p.backoffs, name)
		}
	}
	var begun int32
	if atWork(p.op) && p.op.Pool == name {
		begun = p.op.DesiredWorkers - p.op.From
	}
	was := r.change
	switch f.mode {
	case clusterv1.ScalingOff:
		r.change = min(max(r.change, min(begun, 0)), max(begun, 0))
	case clusterv1.ScalingUpOnly:
		r.change = max(r.change, min(begun, 0))
	}
	if over := r.target() - r.pool.MaxSize; over > 0 {
		r.change = min(r.change, max(r.change-over, begun, 0))
	}
	if r.change != was {
		p.cancelled = append(p.cancelled, fmt.Sprintf("pool %s: %s", name, changed(was, r.change)))
	}
	if under := r.pool.MinSize - r.target(); under > 0 && f.mode != clusterv1.ScalingOff && (r.change < 0 || enforcesMin(f.spec) && !backsOff(p.backoffs[name], f.now)) {
		if r.change < 0 && !enforcesMin(f.spec) {
			under = min(under, -r.change)
		}
		r.change += under
	}
	if b := p.backoffs[name]; b != nil {
		b.Missing = r.missing
	}
}

func changed(was, is int32) string {
	switch {
	case was > 0:
		return fmt.Sprintf("%d machines are not made any more", was-max(is, 0))
	case was < 0:
		return fmt.Sprintf("%d machines stay", min(is, 0)-was)
	}
	return ""
}

func enforcesMin(spec *clusterv1.KsctlAutoScalerSpec) bool {
	return spec.ScaleUp == nil || spec.ScaleUp.EnforceMinSize == nil || *spec.ScaleUp.EnforceMinSize
}

// backsOff is true while nothing is made for a pool.
func backsOff(b *clusterv1.PoolBackoff, now time.Time) bool {
	return b != nil && now.Before(b.Until.Time)
}

// dismissLate has the last machine deleted if it has not joined in time: who asked for it is told that
// it could not be made. The one before is looked at when it is gone.
func (p *plan) dismissLate(f facts) {
	if f.mode == clusterv1.ScalingOff {
		return
	}
	last := f.fleet.size() - 1
	if last < 0 || !f.late[f.fleet.machines[last].index] {
		return
	}
	r := rowOf(p.rows, f.fleet.machines[last].pool)
	if r == nil || r.change < 0 {
		return
	}
	r.missing++
	p.fail(r.pool.Name, word{code: CodeJoinTimeout, message: "a machine was made and has not joined the cluster in time: it is deleted"}, r.missing, f.now)
	r.change--
}

// next is the operation that is due; nil: none is.
func (p *plan) next(f facts) *clusterv1.ScaleOperation {
	if f.mode == clusterv1.ScalingOff {
		return nil
	}
	size := f.fleet.size()
	if pool, n := p.leaving(f.fleet); n > 0 {
		return p.operation(f, clusterv1.OperationScaleDown, pool, size-n)
	}
	for i := range p.rows {
		r := &p.rows[i]
		if r.change <= 0 || backsOff(p.backoffs[r.pool.Name], f.now) {
			continue
		}
		if room := roomFor(f.spec, f.fleet); room < r.change {
			p.cancelled = append(p.cancelled, fmt.Sprintf("pool %s: %s", r.pool.Name, changed(r.change, room)))
			if r.change = room; room == 0 {
				continue
			}
		}
		return p.operation(f, clusterv1.OperationScaleUp, r.pool, size+r.change)
	}
	return nil
}

// roomFor is how many nodes the cluster may still get.
func roomFor(spec *clusterv1.KsctlAutoScalerSpec, f *fleet) int32 {
	if spec.Limits == nil || spec.Limits.MaxNodesTotal == 0 {
		return 1 << 30
	}
	return max(spec.Limits.MaxNodesTotal-f.others-f.size(), 0)
}

// leaving is the pool whose machines are at the end of the array and are to go, and how many of
// them are.
func (p *plan) leaving(f *fleet) (*clusterv1.WorkerPool, int32) {
	var (
		r *row
		n int32
	)
	for i := len(f.machines) - 1; i >= 0; i-- {
		m := &f.machines[i]
		if r == nil {
			r = rowOf(p.rows, m.pool)
		}
		if r == nil || r.pool.Name != m.pool || n >= -r.change {
			break
		}
		n++
	}
	if n == 0 {
		return nil, 0
	}
	return r.pool, n
}

func (p *plan) operation(f facts, kind clusterv1.OperationKind, pool *clusterv1.WorkerPool, desired int32) *clusterv1.ScaleOperation {
	return &clusterv1.ScaleOperation{
		ID: f.uid[:min(8, len(f.uid))] + "-" + strconv.FormatInt(f.now.UnixNano(), 36), Kind: kind, Pool: pool.Name,
		From: f.fleet.size(), DesiredWorkers: desired, NodeSize: pool.NodeSize,
		StartedAt: metav1.NewTime(f.now), State: clusterv1.OperationPending,
	}
}
