package autoscaler

import (
	"cmp"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// backoffEvent is the event of a backoff that began. The event of the outcome is not enough: it
// reports a backoff only if no other problem takes precedence, such as an unreachable agent.
type backoffEvent struct{ reason, message string }

// startedBackoffs returns the events of the backoffs that are not in the previous status. Each
// failure starts a backoff with a new end; a backoff for machines of another size lasts as long as
// these machines exist. The caller must persist them at once, or the next reconcile would start
// them again and emit a second event.
func (p *scalingPlan) startedBackoffs(before *clusterv1.KsctlAutoScalerStatus, now time.Time) (out []backoffEvent) {
	for i := range p.pools {
		name := p.pools[i].pool.Name
		b, was := p.backoffs[name], poolStatus(before, name)
		if b == nil || !inBackoff(b, b.Operation, now) {
			continue
		}
		if was != nil && was.Backoff != nil && was.Backoff.Operation == b.Operation &&
			was.Backoff.Failures == b.Failures &&
			(was.Backoff.Until.Equal(&b.Until) || b.Code == clusterv1.CodeOtherSize) {
			continue
		}
		reason, action := clusterv1.ScaleUpBackoffReason, "created"
		if b.Operation == clusterv1.OperationScaleDown {
			reason, action = clusterv1.ScaleDownBackoffReason, "deleted"
		}
		out = append(out, backoffEvent{reason, fmt.Sprintf("pool %s backs off until %s, no machines are %s: %s, %d "+
			"%s in a row: %s",
			name, b.Until.UTC().Format(time.RFC3339), action, b.Code, b.Failures, plural("failure", b.Failures),
			b.Message)})
	}
	return out
}

// countOperation reports the result of the operation that ended to OperationEnded. It ignores an
// operation of a pool that is no longer in the spec.
func (s *Steps) countOperation(obj *clusterv1.KsctlAutoScaler, p *scalingPlan) {
	if s.OperationEnded == nil || p.ended == nil {
		return
	}
	r := poolOfOperation(p.pools, p.ended)
	if r == nil {
		return
	}
	result := string(p.ended.State)
	if p.ended.State == clusterv1.OperationFailed {
		result = cmp.Or(p.ended.Code, clusterv1.CodeFailed)
	}
	s.OperationEnded(client.ObjectKeyFromObject(obj), r.pool.Name, string(p.ended.Kind), result)
}
