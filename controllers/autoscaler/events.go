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
	// ScaleUpBackoffReason: nothing is made for a pool from now on.
	ScaleUpBackoffReason = "ScaleUpBackoff"
	// ScaleDownBackoffReason: nothing is deleted for a pool from now on.
	ScaleDownBackoffReason = "ScaleDownBackoff"
)

// newBackoff is one that a plan begins.
type newBackoff struct {
	pool string
	*clusterv1.PoolBackoff
}

// newBackoffs are those that are not in the status of before. Each failure has one of its own, until
// another time; that of machines of another size lasts as long as they do. They are written down at once: else the next reconcile would begin them anew, and say
// so twice.
func (p *plan) newBackoffs(before *clusterv1.KsctlAutoScalerStatus, now time.Time) (out []newBackoff) {
	for i := range p.rows {
		name := p.rows[i].pool.Name
		b, was := p.backoffs[name], poolStatus(before, name)
		if b == nil || !backsOff(b, b.Operation, now) {
			continue
		}
		if was == nil || was.Backoff == nil || was.Backoff.Operation != b.Operation || was.Backoff.Failures != b.Failures || !was.Backoff.Until.Equal(&b.Until) && b.Code != CodeOtherSize {
			out = append(out, newBackoff{name, b})
		}
	}
	return out
}

// tellBackoffs records of which pools nothing is made, or deleted, from now on. The outcome's own event
// says it only where nothing goes before it, such as an agent that has ceased to answer.
func tellBackoffs(req *reconcile.Request[*clusterv1.KsctlAutoScaler], begun []newBackoff) {
	for _, b := range begun {
		reason, what := ScaleUpBackoffReason, "made"
		if b.Operation == clusterv1.OperationScaleDown {
			reason, what = ScaleDownBackoffReason, "deleted"
		}
		req.Event(corev1.EventTypeWarning, reason, fmt.Sprintf("pool %s backs off until %s, nothing is %s: %s, %d %s in a row: %s",
			b.pool, b.Until.UTC().Format(time.RFC3339), what, b.Code, b.Failures, plural("failure", b.Failures), b.Message))
	}
}

// count says how an operation has ended. One of a pool that left the spec is nobody's.
func (s *Steps) count(obj *clusterv1.KsctlAutoScaler, p *plan) {
	if s.Scaled == nil || p.ended == nil {
		return
	}
	r := rowOfOperation(p.rows, p.ended)
	if r == nil {
		return
	}
	result := string(p.ended.State)
	if p.ended.State == clusterv1.OperationFailed {
		result = cmp.Or(p.ended.Code, CodeFailed)
	}
	s.Scaled(client.ObjectKeyFromObject(obj), r.pool.Name, string(p.ended.Kind), result)
}
