package autoscaler

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Reasons of events.
const (
	// ScaleUpBackoffReason: a backoff began, in which no machines of a pool are created.
	ScaleUpBackoffReason = "ScaleUpBackoff"
	// ScaleDownBackoffReason: a backoff began, in which no machines of a pool are deleted.
	ScaleDownBackoffReason = "ScaleDownBackoff"
)

// startedBackoff is a backoff of a pool that begins with the plan.
type startedBackoff struct {
	pool string
	*clusterv1.PoolBackoff
}

// startedBackoffs returns the backoffs that are not in the previous status. Each failure starts a
// backoff with a new end; a backoff for machines of another size lasts as long as these machines
// exist. The caller must persist them at once, or the next reconcile would start them again and
// emit a second event.
func (p *scalingPlan) startedBackoffs(before *clusterv1.KsctlAutoScalerStatus, now time.Time) (out []startedBackoff) {
	for i := range p.pools {
		name := p.pools[i].pool.Name
		b, was := p.backoffs[name], poolStatus(before, name)
		if b == nil || !inBackoff(b, b.Operation, now) {
			continue
		}
		if was == nil || was.Backoff == nil || was.Backoff.Operation != b.Operation || was.Backoff.Failures != b.Failures || !was.Backoff.Until.Equal(&b.Until) && b.Code != CodeOtherSize {
			out = append(out, startedBackoff{name, b})
		}
	}
	return out
}

// emitBackoffs emits an event for each backoff that began. The event of the outcome is not enough:
// it reports a backoff only if no other problem takes precedence, such as an unreachable agent.
func emitBackoffs(req *reconcile.Request[*clusterv1.KsctlAutoScaler], started []startedBackoff) {
	for _, b := range started {
		reason, action := ScaleUpBackoffReason, "created"
		if b.Operation == clusterv1.OperationScaleDown {
			reason, action = ScaleDownBackoffReason, "deleted"
		}
		req.Event(corev1.EventTypeWarning, reason, fmt.Sprintf("pool %s backs off until %s, no machines are %s: %s, %d %s in a row: %s",
			b.pool, b.Until.UTC().Format(time.RFC3339), action, b.Code, b.Failures, plural("failure", b.Failures), b.Message))
	}
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
		result = cmp.Or(p.ended.Code, CodeFailed)
	}
	s.OperationEnded(client.ObjectKeyFromObject(obj), r.pool.Name, string(p.ended.Kind), result)
}
