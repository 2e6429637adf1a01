package autoscaler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// toCluster returns the state to publish for Cluster Autoscaler.
func toCluster(obj *clusterv1.KsctlAutoScaler, seen *observation, p *scalingPlan,
	now time.Time) (*nodegroup.Cluster, error) {
	c := &nodegroup.Cluster{Key: client.ObjectKeyFromObject(obj), Mode: effectiveMode(obj),
		OtherNodes: seen.machines.otherNodes, Busy: session.IsInProgress(p.op)}
	if obj.Spec.Limits != nil {
		c.MaxNodes = obj.Spec.Limits.MaxNodesTotal
	}
	for i := range p.pools {
		r := &p.pools[i]
		node, _ := poolTemplate(seen, r.pool)
		bytes, err := nodegroup.MarshalNode(node)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", r.pool.Name, err)
		}
		c.Groups = append(c.Groups, nodegroup.Group{ID: groupID(obj, r.pool.Name), Name: r.pool.Name,
			Min: r.pool.MinSize, Max: max(r.pool.MaxSize-r.lost, 0), Target: r.target(), Failure: p.toFailure(r, now),
			Template: bytes})
	}
	c.Workers = toWorkers(seen, p)
	for i := range c.Workers {
		if c.Workers[i].Pool == "" {
			c.OtherNodes++
		}
	}
	return c, nil
}

func groupID(obj *clusterv1.KsctlAutoScaler, pool string) string {
	return nodegroup.GroupID(client.ObjectKeyFromObject(obj), pool)
}

func (p *scalingPlan) toFailure(r *poolPlan, now time.Time) *nodegroup.Failure {
	b := p.backoffs[r.pool.Name]
	if d := p.uncertainty; d != nil && !inBackoff(b, clusterv1.OperationScaleUp, now) {
		return &nodegroup.Failure{Code: clusterv1.CodeUnsettled, Message: d.String(), Count: r.missing,
			BackoffUntil: later(d.deadline, now.Add(settleTime))}
	}
	if b == nil || !inBackoff(b, clusterv1.OperationScaleUp, now) && r.missing == 0 {
		return nil
	}
	return &nodegroup.Failure{OutOfResources: b.Code == clusterv1.CodeOutOfResources, Code: b.Code, Message: b.Message,
		Count: r.missing, BackoffUntil: b.Until.Time}
}

// toWorkers returns the array of workers, including machines that are being created. Machines that
// are being deleted, or will be, are marked.
func toWorkers(seen *observation, p *scalingPlan) []nodegroup.Worker {
	var out []nodegroup.Worker
	for i := range seen.machines.list {
		m := &seen.machines.list[i]
		w := nodegroup.Worker{Index: m.index, Pool: m.pool, Ready: m.ready()}
		if m.lost {
			w.Pool = ""
		}
		// A node without the labels of its pool does not fit pods that select them, and Cluster
		// Autoscaler would request another machine. Until then the worker counts as not joined.
		if r := findPool(p.pools, m.pool); m.node != nil &&
			(r == nil || m.node.Spec.ProviderID != "" && len(missingLabels(m.node, r.pool)) == 0) {
			w.Node, w.ProviderID = m.node.Name, m.node.Spec.ProviderID
		}
		out = append(out, w)
	}
	if op := p.op; session.IsInProgress(op) {
		for r := poolOfOperation(p.pools, op); r != nil && int32(len(out)) < op.DesiredWorkers; {
			w := nodegroup.Worker{Pool: r.pool.Name}
			if n := len(out); n > 0 {
				w.Index = out[n-1].Index + 1
			}
			out = append(out, w)
		}
		for i := range out {
			out[i].Deleting = int32(i) >= op.DesiredWorkers
		}
	}
	for _, r := range p.pools { // deletions that are requested, but have not begun
		left := -r.change
		for i := len(out) - 1; i >= 0 && left > 0; i-- {
			if out[i].Pool == r.pool.Name && !out[i].Deleting {
				out[i].Deleting = true
				left--
			}
		}
	}
	return out
}

// publish publishes the state of the cluster for Cluster Autoscaler.
func (s *Steps) publish(ctx context.Context, obj *clusterv1.KsctlAutoScaler, seen *observation, p *scalingPlan) error {
	c, err := toCluster(obj, seen, p, s.Clock.Now())
	if err != nil {
		return err
	}
	s.Published.Publish(c)
	// If the object was suspended meanwhile, pauseSuspended has run before Publish and does not run
	// again.
	var now clusterv1.KsctlAutoScaler
	if err := s.Client.Get(ctx, c.Key, &now, client.UnsafeDisableDeepCopy); err == nil && now.Spec.Suspend &&
		now.DeletionTimestamp == nil {
		s.pausePolling(obj, errSuspended)
	}
	return nil
}

// applyRequests adds the requests of Cluster Autoscaler to a plan. It answers the requests without
// a change. It returns the others, which must be answered when the plan is recorded.
func (s *Steps) applyRequests(obj *clusterv1.KsctlAutoScaler, seen *observation,
	p *scalingPlan) (granted []*changeRequest) {
	for _, r := range s.state.drainRequests(client.ObjectKeyFromObject(obj)) {
		if r.ctx.Err() != nil {
			continue // the caller has already received an error
		}
		c, err := toCluster(obj, seen, p, s.Clock.Now())
		if err != nil {
			r.done <- err
			continue
		}
		changes, err := r.decide(c)
		if err != nil || len(changes) == 0 {
			r.done <- err
			continue
		}
		for _, x := range changes {
			p.applyChange(x, s.Clock.Now())
		}
		granted = append(granted, r)
	}
	return granted
}

// poolTemplate returns the template of the next node of a pool.
func poolTemplate(seen *observation, pool *clusterv1.WorkerPool) (*corev1.Node, clusterv1.TemplateSource) {
	var existing *corev1.Node
	for i := range seen.machines.list {
		if m := &seen.machines.list[i]; m.pool == pool.Name && m.ready() {
			existing = m.node
			break
		}
	}
	return nodegroup.Template(pool, existing)
}
