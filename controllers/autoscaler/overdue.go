package autoscaler

import (
	"fmt"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

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
	p.recordFailure(r, clusterv1.OperationScaleUp, session.OperationStatus{Code: clusterv1.CodeJoinTimeout, Message: message})
	p.recordScale(r, r.existing, r.existing-n, fmt.Sprintf("did not join in time: %d %s", n, plural("machine", n)), p.now)
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
