package autoscaler

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

const (
	// initialBackoff is the backoff of a pool after the first failure. It doubles with each further
	// failure, up to maxBackoff.
	initialBackoff = time.Minute
	maxBackoff     = 30 * time.Minute
	// failureRetention is how long failures are counted after the end of the backoff.
	failureRetention = time.Hour
	// deletionTimeout is how long a requested deletion waits until its machine is the last one and
	// is tainted by Cluster Autoscaler.
	deletionTimeout = 2 * time.Minute
)

// planInput contains all inputs of a plan.
type planInput struct {
	// mode is the mode of the spec, or Off while the object is suspended or being deleted.
	mode     clusterv1.ScalingMode
	spec     *clusterv1.KsctlAutoScalerSpec
	status   *clusterv1.KsctlAutoScalerStatus
	machines *machines
	// reported is the operation's status as the agent reports it. ksctlAgent is true if the agent
	// is ksctl's own, which cannot list workers.
	reported   session.OperationStatus
	ksctlAgent bool
	// knownWorkers is the number of workers that is known without the imported state. It is used
	// for ksctl's own agent only.
	knownWorkers int32
	// overdue contains the indexes of the machines that have not joined within joinTimeout.
	overdue     map[int32]bool
	joinTimeout time.Duration
	// uid is the UID of the object, now the current time.
	uid string
	now time.Time
}

// scalingPlan holds the desired number of machines of each pool, and the operation to get there.
type scalingPlan struct {
	planInput
	pools    []poolPlan
	backoffs map[string]*clusterv1.PoolBackoff
	// op is the operation in progress, or the last one. ended is set if it ended in this reconcile.
	op, ended *clusterv1.ScaleOperation
	// lastScales are the changes of pools in this reconcile, with their reasons, by pool.
	lastScales map[string]*clusterv1.PoolScale
	// canceled contains a message for each pool with canceled changes. blocked is why no machine is
	// created; "" if machines may be created.
	canceled []string
	blocked  string
	// awaitingJoin is true while no machine is created because others have not joined yet.
	awaitingJoin bool
	// uncertainty describes the uncertain number of workers; nil if the number is certain.
	uncertainty *uncertainty
}

// newPlan applies the reported result of the operation in progress and the current spec to the
// status. applyRequests then adds the requests of Cluster Autoscaler, and the next operation starts
// unless one is in progress.
func newPlan(obj *clusterv1.KsctlAutoScaler, seen *observation, now time.Time,
	applyRequests func(*scalingPlan)) *scalingPlan {
	f := planInput{mode: effectiveMode(obj), spec: &obj.Spec, status: &obj.Status, machines: &seen.machines,
		reported: seen.reported, ksctlAgent: seen.ksctlAgent,
		knownWorkers: seen.knownWorkers, overdue: seen.overdue, joinTimeout: joinTimeout(&obj.Spec),
		uid: string(obj.UID), now: now}
	p := &scalingPlan{planInput: f, pools: newPoolPlans(f.spec, f.status, f.machines),
		backoffs: map[string]*clusterv1.PoolBackoff{}, op: f.status.Operation.DeepCopy()}
	for _, r := range p.pools {
		if was := poolStatus(f.status, r.pool.Name); was != nil && was.Backoff != nil {
			p.backoffs[r.pool.Name] = was.Backoff.DeepCopy()
		}
	}
	if session.IsInProgress(p.op) {
		p.applyReport()
		p.giveUpSlow()
	}
	p.uncertainty = p.assessUncertainty()
	p.blocked, p.awaitingJoin = p.blockReason(), f.ksctlAgent && (p.awaitsJoin() || len(f.machines.orphanedNodes) > 0)
	for i := range p.pools {
		p.applyBounds(&p.pools[i])
	}
	applyRequests(p)
	p.startNext()
	return p
}

// startNext starts the next operation, unless one is in progress.
func (p *scalingPlan) startNext() {
	if session.IsInProgress(p.op) {
		return
	}
	p.deleteOverdue()
	if op := p.nextOperation(); op != nil {
		p.op = op
	}
}

// blockReason returns why no machine may be created because the existing workers are uncertain; ""
// if they are certain.
func (p *scalingPlan) blockReason() string {
	if p.uncertainty != nil {
		return p.uncertainty.String()
	}
	for _, node := range p.machines.orphanedNodes {
		if nodeReady(node) && p.now.After(node.CreationTimestamp.Add(orphanTimeout)) {
			return fmt.Sprintf("node %s is ready, but the agent lists no such worker: delete the Node if its machine "+
				"is gone, else delete the machine", node.Name)
		}
	}
	if p.ksctlAgent {
		return p.unjoinedWorker()
	}
	return ""
}

// applyBounds limits the requested change of a pool to what the current spec allows.
func (p *scalingPlan) applyBounds(r *poolPlan) {
	name, was := r.pool.Name, r.change
	p.expireBackoff(r)
	switch p.mode {
	case clusterv1.ScalingOff:
		r.change = 0
	case clusterv1.ScalingUpOnly: // machines that never joined may be deleted
		r.change = max(r.change, -unjoinedTail(p.machines, name))
	}
	r.change = max(r.change, -r.existing)
	if r.change < 0 && p.deletionExpired(name) {
		r.change = 0
	}
	if over := r.target() + r.lost - r.pool.MaxSize; over > 0 && r.change > 0 {
		r.change = max(r.change-over, 0)
	}
	// No deletion goes below minSize, even if it was requested before minSize was raised.
	if under := r.pool.MinSize - r.target(); under > 0 && r.change < 0 {
		r.change = min(r.change+under, 0)
	}
	if r.change != was {
		p.canceled = append(p.canceled, fmt.Sprintf("pool %s: %s", name, cancelMessage(was, r.change)))
	}
	p.setMinSizeDeficit(r)
	if b := p.backoffs[name]; b != nil {
		b.Missing = r.missing
	}
}

// expireBackoff ends a backoff that is over: the missing machines may be requested again.
func (p *scalingPlan) expireBackoff(r *poolPlan) {
	b := p.backoffs[r.pool.Name]
	switch {
	case b == nil:
	// the machines are deleted, or now in a pool
	case b.Code == clusterv1.CodeOtherSize && p.machines.unmanaged(b.From) == 0:
		r.missing = 0
		delete(p.backoffs, r.pool.Name)
	case p.now.Before(b.Until.Time):
	case b.Code == clusterv1.CodeOtherSize: // it stays visible until these machines are deleted
		b.Until = metav1.NewTime(p.now.Add(maxBackoff))
	default:
		b.Missing, r.missing = 0, 0
		if p.now.After(b.Until.Add(failureRetention)) {
			delete(p.backoffs, r.pool.Name)
		}
	}
}

// setMinSizeDeficit sets the number of machines that the pool lacks for minSize.
func (p *scalingPlan) setMinSizeDeficit(r *poolPlan) {
	r.minSizeDeficit = 0
	if p.mode == clusterv1.ScalingOff || !enforcesMinSize(p.spec) || p.blocked != "" || p.awaitingJoin ||
		inBackoff(p.backoffs[r.pool.Name], clusterv1.OperationScaleUp, p.now) {
		return
	}
	r.minSizeDeficit = max(min(r.pool.MinSize-r.target()-r.lost, p.remainingNodes()), 0)
}

// deletionExpired reports whether the requested deletion of a pool is obsolete. Cluster Autoscaler
// taints the node before it requests its deletion. If the last node is not tainted after
// deletionTimeout, the request is no longer valid.
func (p *scalingPlan) deletionExpired(pool string) bool {
	was := poolStatus(p.status, pool)
	if was == nil || was.LastScale == nil || session.IsInProgress(p.status.Operation) ||
		p.now.Before(was.LastScale.Time.Add(deletionTimeout)) {
		return false
	}
	last := len(p.machines.list) - 1
	if last < 0 || !p.machines.list[last].deletable() {
		return true
	}
	first := findPool(p.pools, p.machines.list[last].pool)
	return first == nil || first.change >= 0 // no deletion is requested for the last machine
}

func cancelMessage(was, is int32) string {
	if was > 0 {
		return fmt.Sprintf("canceled the creation of %d machines", was-max(is, 0))
	}
	return fmt.Sprintf("canceled the deletion of %d machines", min(is, 0)-was)
}

func enforcesMinSize(spec *clusterv1.KsctlAutoScalerSpec) bool {
	return spec.ScaleUp == nil || spec.ScaleUp.EnforceMinSize == nil || *spec.ScaleUp.EnforceMinSize
}

// inBackoff reports whether a pool is in backoff after a failed operation of a kind.
func inBackoff(b *clusterv1.PoolBackoff, kind clusterv1.OperationKind, now time.Time) bool {
	return b != nil && b.Operation == kind && now.Before(b.Until.Time)
}

// nextOperation returns the operation to start; nil if there is none.
func (p *scalingPlan) nextOperation() *clusterv1.ScaleOperation {
	if p.mode == clusterv1.ScalingOff {
		return nil
	}
	if p.uncertainty != nil && p.uncertainty.suspect < 0 {
		return p.recount()
	}
	if p.ksctlAgent && p.machines.size() > max(p.knownWorkers, joinedEnd(p.machines)) {
		return nil // it is unknown which workers exist
	}
	if p.ksctlAgent && len(p.machines.orphanedNodes) > 0 {
		return nil // only the last operation shows that the machines of orphaned nodes were deleted
	}
	if r, n := p.deletableTail(); n > 0 {
		r.change += n
		return p.newPoolOperation(clusterv1.OperationScaleDown, r, -n)
	}
	for i := range p.pools {
		r := &p.pools[i]
		if r.pending() <= 0 || p.blocked != "" || p.awaitingJoin ||
			inBackoff(p.backoffs[r.pool.Name], clusterv1.OperationScaleUp, p.now) {
			continue
		}
		n := min(r.pending(), p.remainingNodes())
		if r.change > n {
			p.canceled = append(p.canceled, fmt.Sprintf("pool %s: %s", r.pool.Name, cancelMessage(r.change, n)))
		}
		requested := p.requestedAt(r)
		if floor := min(r.minSizeDeficit, n); floor > 0 {
			to := r.target() - r.pending() + n
			p.recordScale(r, to-floor, to, fmt.Sprintf("minSize is %d", r.pool.MinSize), p.now)
		}
		if r.change, r.minSizeDeficit = 0, 0; n > 0 {
			op := p.newPoolOperation(clusterv1.OperationScaleUp, r, n)
			op.RequestedAt = requested
			return op
		}
	}
	return nil
}

// remainingNodes returns how many more nodes maxNodesTotal allows.
func (p *scalingPlan) remainingNodes() int32 {
	if p.spec.Limits == nil || p.spec.Limits.MaxNodesTotal == 0 {
		return 1 << 20
	}
	return max(p.spec.Limits.MaxNodesTotal-p.machines.otherNodes-p.machines.size(), 0)
}

// deletableTail returns the pool of the last machines of the array, and how many of them are to be
// deleted. It never includes a joined machine that Cluster Autoscaler has not tainted.
func (p *scalingPlan) deletableTail() (r *poolPlan, n int32) {
	for _, m := range slices.Backward(p.machines.list) {
		if !m.deletable() {
			break
		}
		if r == nil {
			r = findPool(p.pools, m.pool)
		}
		if r == nil || r.pool.Name != m.pool || n >= -r.change {
			break
		}
		n++
	}
	return r, n
}

// newPoolOperation returns a new operation that changes the size of a pool by n machines.
func (p *scalingPlan) newPoolOperation(kind clusterv1.OperationKind, r *poolPlan, n int32) *clusterv1.ScaleOperation {
	r.inProgress = n
	op := p.newOperation(kind, p.machines.size(), p.machines.size()+n)
	op.Pool, op.NodeSize = r.pool.Name, r.pool.NodeSize
	return op
}

// newOperation returns a new operation that changes the number of workers.
func (p *scalingPlan) newOperation(kind clusterv1.OperationKind, from, to int32) *clusterv1.ScaleOperation {
	return &clusterv1.ScaleOperation{
		ID: p.uid[:min(8, len(p.uid))] + "-" + strconv.FormatInt(p.now.UnixNano(), 36), Kind: kind,
		From: from, DesiredWorkers: to, StartedAt: metav1.NewTime(p.now), State: clusterv1.OperationPending,
	}
}
