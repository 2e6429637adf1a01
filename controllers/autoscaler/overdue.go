package autoscaler

import (
	"fmt"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// dismissLate has the last machines deleted if they have not joined in time: who asked for them is told
// that they could not be made.
func (p *plan) dismissLate(f facts) {
	pool, n := f.dismissible()
	r := rowOf(p.rows, pool)
	if f.mode == clusterv1.ScalingOff || n == 0 || r == nil || r.change < 0 {
		return
	}
	message := "a machine was made and has not joined the cluster in time: it is deleted"
	if n > 1 {
		message = fmt.Sprintf("%d machines were made and have not joined the cluster in time: they are deleted", n)
	}
	r.missing += n + r.change // what has just been asked for comes after the back-off, too
	p.fail(r, clusterv1.OperationScaleUp, word{code: CodeJoinTimeout, message: message}, f.now)
	p.scale(r, r.existing, r.existing-n, fmt.Sprintf("not joined in time: %d %s", n, plural("machine", n)), f.now)
	r.change, r.floor = -n, 0
}

// dismissible are the last machines that are late, of one pool.
func (f facts) dismissible() (pool string, n int32) {
	for i := f.fleet.size() - 1; i >= 0; i-- {
		m := &f.fleet.machines[i]
		if !f.late[m.index] || m.lost || n > 0 && m.pool != pool {
			break
		}
		pool, n = m.pool, n+1
	}
	return pool, n
}
