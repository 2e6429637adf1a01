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
	// wishTime is how long a deletion that was asked for may wait for its machine to be the last
	// one, marked by Cluster Autoscaler.
	wishTime = 2 * time.Minute
)

// facts are what a plan follows from.
type facts struct {
	// mode is that of the spec, or Off while it is suspended or deleted.
	mode   clusterv1.ScalingMode
	spec   *clusterv1.KsctlAutoScalerSpec
	status *clusterv1.KsctlAutoScalerStatus
	fleet  *fleet
	// word of the agent, and plain where it is ksctl's own, which can't be asked what there is.
	word  word
	plain bool
	// counted is how many workers there are where the imported state is not asked, for ksctl's own.
	counted int32
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
	// scaled are the pools that change, and why.
	scaled map[string]*clusterv1.PoolScale
	// cancelled says of pools what is not done any more, and why; held why nothing is made.
	cancelled []string
	held      string
	// waits is true while nothing is made as machines have yet to join.
	waits bool
	// doubt is of how many workers there are; nil: that is known.
	doubt *doubt
}

// newPlan takes in what the agent said of the operation at work, and what the spec says by now.
// What is asked for is added to its rows, before choose. It is a pure function of the facts.
func newPlan(f facts) *plan {
	p := &plan{rows: rows(f.spec, f.status, f.fleet), backoffs: map[string]*clusterv1.PoolBackoff{}, op: f.status.Operation.DeepCopy()}
	for _, r := range p.rows {
		if was := poolStatus(f.status, r.pool.Name); was != nil && was.Backoff != nil {
			p.backoffs[r.pool.Name] = was.Backoff.DeepCopy()
		}
	}
	if atWork(p.op) {
		p.settle(f)
		p.overdue(f)
	}
	p.doubt = p.settleDoubt(f)
	p.held, p.waits = p.hold(f), f.plain && (f.joining() || len(f.fleet.strays) > 0)
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

// hold is why no machine is made: what there is can't be told for sure.
func (p *plan) hold(f facts) string {
	if p.doubt != nil {
		return p.doubt.String()
	}
	for _, node := range f.fleet.strays {
		if nodeReady(node) && f.now.After(node.CreationTimestamp.Add(strayTime)) {
			return fmt.Sprintf("node %s is ready, and as the agent says there is no such worker: delete the Node if its machine is gone, and the machine if it is not", node.Name)
		}
	}
	if f.plain {
		return f.absent()
	}
	return ""
}

// bound keeps what is asked for within what the spec allows by now.
func (p *plan) bound(r *row, f facts) {
	name, was := r.pool.Name, r.change
	p.age(r, f)
	switch f.mode {
	case clusterv1.ScalingOff:
		r.change = 0
	case clusterv1.ScalingUpOnly: // what has never joined may go
		r.change = max(r.change, -unjoined(f.fleet, name))
	}
	r.change = max(r.change, -r.existing)
	if r.change < 0 && p.stale(f, name) {
		r.change = 0
	}
	if over := r.target() + r.lost - r.pool.MaxSize; over > 0 && r.change > 0 {
		r.change = max(r.change-over, 0)
	}
	// No deletion goes below minSize, whatever was asked for before it was raised.
	if under := r.pool.MinSize - r.target(); under > 0 && r.change < 0 {
		r.change = min(r.change+under, 0)
	}
	if r.change != was {
		p.cancelled = append(p.cancelled, fmt.Sprintf("pool %s: %s", name, changed(was, r.change)))
	}
	p.setFloor(r, f)
	if b := p.backoffs[name]; b != nil {
		b.Missing = r.missing
	}
}

// age ends a back-off when it is over: what could not be made may be asked for again.
func (p *plan) age(r *row, f facts) {
	b := p.backoffs[r.pool.Name]
	switch {
	case b == nil:
	case b.Code == CodeOtherSize && !f.fleet.ofNoPool(b.From): // they are gone, or of a pool
		r.missing = 0
		delete(p.backoffs, r.pool.Name)
	case f.now.Before(b.Until.Time):
	case b.Code == CodeOtherSize: // it ends with them, and is to be seen until then
		b.Until = metav1.NewTime(f.now.Add(maxBackoff))
	default:
		b.Missing, r.missing = 0, 0
		if f.now.After(b.Until.Add(backoffMemory)) {
			delete(p.backoffs, r.pool.Name)
		}
	}
}

// setFloor works out what minSize asks for.
func (p *plan) setFloor(r *row, f facts) {
	r.floor = 0
	if f.mode == clusterv1.ScalingOff || !enforcesMin(f.spec) || p.held != "" || p.waits || backsOff(p.backoffs[r.pool.Name], clusterv1.OperationScaleUp, f.now) {
		return
	}
	r.floor = max(min(r.pool.MinSize-r.target()-r.lost, roomFor(f.spec, f.fleet)), 0)
}

// stale is true for a deletion that nobody waits for any more: whoever asked for it has marked the
// node, which is then the last one, or has gone on.
func (p *plan) stale(f facts, pool string) bool {
	was := poolStatus(f.status, pool)
	if was == nil || was.LastScale == nil || atWork(f.status.Operation) || f.now.Before(was.LastScale.Time.Add(wishTime)) {
		return false
	}
	last := len(f.fleet.machines) - 1
	if last < 0 || !f.fleet.machines[last].leaves() {
		return true
	}
	first := rowOf(p.rows, f.fleet.machines[last].pool)
	return first == nil || first.change >= 0 // of which nobody wants the deletion any more
}

func changed(was, is int32) string {
	if was > 0 {
		return fmt.Sprintf("%d machines are not made any more", was-max(is, 0))
	}
	return fmt.Sprintf("%d machines stay", min(is, 0)-was)
}

func enforcesMin(spec *clusterv1.KsctlAutoScalerSpec) bool {
	return spec.ScaleUp == nil || spec.ScaleUp.EnforceMinSize == nil || *spec.ScaleUp.EnforceMinSize
}

// backsOff is true while a pool is left alone after an operation of a kind.
func backsOff(b *clusterv1.PoolBackoff, kind clusterv1.OperationKind, now time.Time) bool {
	return b != nil && b.Operation == kind && now.Before(b.Until.Time)
}

// next is the operation that is due; nil: none is.
func (p *plan) next(f facts) *clusterv1.ScaleOperation {
	if f.mode == clusterv1.ScalingOff {
		return nil
	}
	if p.doubt != nil && p.doubt.idle < 0 {
		return p.recount(f)
	}
	if f.plain && f.fleet.size() > max(f.counted, joinedEnd(f.fleet)) {
		return nil // which there are is not known
	}
	if f.plain && len(f.fleet.strays) > 0 {
		return nil // when another operation is the last, nobody knows any more that their machines are gone
	}
	if r, n := p.leaving(f.fleet); n > 0 {
		r.change += n
		return p.operation(f, clusterv1.OperationScaleDown, r, -n)
	}
	for i := range p.rows {
		r := &p.rows[i]
		if r.pending() <= 0 || p.held != "" || p.waits || backsOff(p.backoffs[r.pool.Name], clusterv1.OperationScaleUp, f.now) {
			continue
		}
		n := min(r.pending(), roomFor(f.spec, f.fleet))
		if r.change > n {
			p.cancelled = append(p.cancelled, fmt.Sprintf("pool %s: %s", r.pool.Name, changed(r.change, n)))
		}
		requested := p.requestedAt(f, r)
		if floor := min(r.floor, n); floor > 0 {
			to := r.target() - r.pending() + n
			p.scale(r, to-floor, to, fmt.Sprintf("minSize is %d", r.pool.MinSize), f.now)
		}
		if r.change, r.floor = 0, 0; n > 0 {
			op := p.operation(f, clusterv1.OperationScaleUp, r, n)
			op.RequestedAt = requested
			return op
		}
	}
	return nil
}

// roomFor is how many nodes the cluster may still get.
func roomFor(spec *clusterv1.KsctlAutoScalerSpec, f *fleet) int32 {
	if spec.Limits == nil || spec.Limits.MaxNodesTotal == 0 {
		return 1 << 20
	}
	return max(spec.Limits.MaxNodesTotal-f.others-f.size(), 0)
}

// leaving is the pool whose machines are at the end of the array and are to go, and how many of
// them are: none that has joined, and that Cluster Autoscaler has not marked.
func (p *plan) leaving(f *fleet) (r *row, n int32) {
	for i := len(f.machines) - 1; i >= 0 && f.machines[i].leaves(); i-- {
		m := &f.machines[i]
		if r == nil {
			r = rowOf(p.rows, m.pool)
		}
		if r == nil || r.pool.Name != m.pool || n >= -r.change {
			break
		}
		n++
	}
	return r, n
}

// operation is begun for a pool.
func (p *plan) operation(f facts, kind clusterv1.OperationKind, r *row, n int32) *clusterv1.ScaleOperation {
	r.begun = n
	op := p.begin(f, kind, f.fleet.size(), f.fleet.size()+n)
	op.Pool, op.NodeSize = r.pool.Name, r.pool.NodeSize
	return op
}

// begin is an operation on the array.
func (p *plan) begin(f facts, kind clusterv1.OperationKind, from, to int32) *clusterv1.ScaleOperation {
	return &clusterv1.ScaleOperation{
		ID: f.uid[:min(8, len(f.uid))] + "-" + strconv.FormatInt(f.now.UnixNano(), 36), Kind: kind,
		From: from, DesiredWorkers: to, StartedAt: metav1.NewTime(f.now), State: clusterv1.OperationPending,
	}
}
