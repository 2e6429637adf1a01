package autoscaler

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// grant has a change in the plan.
func (p *plan) grant(c nodegroup.Change, now time.Time) {
	r := rowOf(p.rows, c.Pool)
	if r == nil {
		return
	}
	from := r.target()
	r.missing = max(r.missing-c.Forgive, 0)
	// What minSize asks for is asked for with it.
	r.change, r.floor = c.Target-r.existing-r.begun-r.missing, 0
	if b := p.backoffs[c.Pool]; b != nil {
		b.Missing = r.missing
	}
	p.scale(r, from, r.target(), c.Reason, now)
}

// scale is the last change of a pool from here on.
func (p *plan) scale(r *row, from, to int32, reason string, now time.Time) {
	if p.scaled == nil {
		p.scaled = map[string]*clusterv1.PoolScale{}
	}
	p.scaled[r.pool.Name] = &clusterv1.PoolScale{Time: metav1.NewTime(now), From: from, To: to, Reason: reason}
}

// report writes the plan into a status.
func (p *plan) report(obj *clusterv1.KsctlAutoScaler, seen *sight) {
	status := &obj.Status
	lines := make([]clusterv1.WorkerPoolStatus, 0, len(p.rows))
	for _, r := range p.rows {
		line := clusterv1.WorkerPoolStatus{Name: r.pool.Name, NodeGroupID: groupID(obj, r.pool.Name), Target: r.target(), Change: r.change,
			Creating: max(r.begun, 0) + max(r.pending(), 0), Deleting: max(-r.begun, 0) + max(-r.change, 0), Backoff: p.backoffs[r.pool.Name], LastScale: p.scaled[r.pool.Name]}
		_, line.TemplateSource = template(seen, r.pool)
		for i := range seen.fleet.machines {
			m := &seen.fleet.machines[i]
			switch {
			case m.pool != r.pool.Name || m.lost:
			case m.node == nil && int32(i) < beyond(p.op, &seen.fleet):
				line.Creating++
			case m.ready():
				line.Registered, line.Ready = line.Registered+1, line.Ready+1
			case m.node != nil:
				line.Registered++
			}
		}
		if was := poolStatus(status, r.pool.Name); line.LastScale == nil && was != nil {
			line.LastScale = was.LastScale
		}
		lines = append(lines, line)
	}
	status.Pools, status.Operation = lines, p.op
	if status.Workers = seen.fleet.size(); seen.plain {
		status.Workers = max(seen.counted, joinedEnd(&seen.fleet))
	}
	// From here on the imported state is older than what is known.
	if seen.imported >= 0 && (!seen.plain || p.ended != nil && p.ended.State == clusterv1.OperationSucceeded) {
		status.ImportedWorkers = &seen.imported
	}
	status.WorkerSizes = sizesOf(seen)
	status.UnmanagedWorkers = seen.fleet.unmanaged()
}

// sizesOf the machines of ksctl's own agent, as far as they are known.
func sizesOf(seen *sight) (out []clusterv1.WorkerSize) {
	for i := range seen.fleet.machines {
		if m := &seen.fleet.machines[i]; seen.plain && m.size != "" {
			out = append(out, clusterv1.WorkerSize{Index: m.index, NodeSize: m.size})
		}
	}
	return out
}

// beyond is the place from which on machines are those that an operation is making: they are
// counted as asked for.
func beyond(op *clusterv1.ScaleOperation, f *fleet) int32 {
	if atWork(op) && op.Kind == clusterv1.OperationScaleUp {
		return op.From
	}
	return f.size()
}

// describe an operation, for people.
func describe(op *clusterv1.ScaleOperation) string {
	n := op.DesiredWorkers - op.From
	what := "making"
	if op.Kind == clusterv1.OperationScaleDown {
		what, n = "deleting", -n
	}
	if op.Kind == clusterv1.OperationRecount {
		return fmt.Sprintf("deleting what has not joined: of %d workers at most %d stay", op.From, op.DesiredWorkers)
	}
	return fmt.Sprintf("%s %d %s of pool %s: from %d workers to %d", what, n, plural("machine", n), op.Pool, op.From, op.DesiredWorkers)
}

func plural(word string, n int32) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
