package autoscaler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// newView is what Cluster Autoscaler is answered.
func newView(obj *clusterv1.KsctlAutoScaler, seen *sight, p *plan, now time.Time) (*nodegroup.Cluster, error) {
	c := &nodegroup.Cluster{Key: client.ObjectKeyFromObject(obj), Mode: mode(obj), OtherNodes: seen.fleet.others, Busy: atWork(p.op)}
	if obj.Spec.Limits != nil {
		c.MaxNodes = obj.Spec.Limits.MaxNodesTotal
	}
	for i := range p.rows {
		r := &p.rows[i]
		node, _ := template(seen, r.pool)
		bytes, err := nodegroup.Marshal(node)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", r.pool.Name, err)
		}
		c.Groups = append(c.Groups, nodegroup.Group{ID: groupID(obj, r.pool.Name), Name: r.pool.Name,
			Min: r.pool.MinSize, Max: max(r.pool.MaxSize-r.lost, 0), Target: r.target(), Failure: p.failureOf(r, now), Template: bytes})
	}
	c.Workers = workersOf(seen, p)
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

func (p *plan) failureOf(r *row, now time.Time) *nodegroup.Failure {
	b := p.backoffs[r.pool.Name]
	if d := p.doubt; d != nil && !backsOff(b, clusterv1.OperationScaleUp, now) {
		return &nodegroup.Failure{Code: CodeUnsettled, Message: d.String(), Count: r.missing, Until: later(d.until, now.Add(doubtTime))}
	}
	if b == nil || !backsOff(b, clusterv1.OperationScaleUp, now) && r.missing == 0 {
		return nil
	}
	return &nodegroup.Failure{OutOfResources: b.Code == CodeOutOfResources, Code: b.Code, Message: b.Message, Count: r.missing, Until: b.Until.Time}
}

// workersOf is the array, with the machines that are being made, and those marked that are to go.
func workersOf(seen *sight, p *plan) []nodegroup.Worker {
	var out []nodegroup.Worker
	for i := range seen.fleet.machines {
		m := &seen.fleet.machines[i]
		w := nodegroup.Worker{Index: m.index, Pool: m.pool, Ready: m.ready()}
		if m.lost {
			w.Pool = ""
		}
		// Before it has the labels of its pool no pod that asks for them fits on it, and another
		// machine would be asked for: so long it counts as one that is to come.
		if r := rowOf(p.rows, m.pool); m.node != nil && (r == nil || m.node.Spec.ProviderID != "" && len(missing(m.node, r.pool)) == 0) {
			w.Node, w.ProviderID = m.node.Name, m.node.Spec.ProviderID
		}
		out = append(out, w)
	}
	if op := p.op; atWork(op) {
		for r := rowOfOperation(p.rows, op); r != nil && int32(len(out)) < op.DesiredWorkers; {
			out = append(out, nodegroup.Worker{Index: after(out), Pool: r.pool.Name})
		}
		for i := range out {
			out[i].Deleting = int32(i) >= op.DesiredWorkers
		}
	}
	for _, r := range p.rows { // asked for, and not begun
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

// after is the index of the next machine.
func after(workers []nodegroup.Worker) int32 {
	if len(workers) == 0 {
		return 0
	}
	return workers[len(workers)-1].Index + 1
}

// publish tells Cluster Autoscaler how the cluster stands.
func (s *Steps) publish(ctx context.Context, obj *clusterv1.KsctlAutoScaler, seen *sight, p *plan) error {
	c, err := newView(obj, seen, p, s.Clock.Now())
	if err != nil {
		return err
	}
	s.Published.Publish(c)
	// It may be suspended by now: that was told before this, and nothing tells it again.
	var now clusterv1.KsctlAutoScaler
	if err := s.Client.Get(ctx, c.Key, &now, client.UnsafeDisableDeepCopy); err == nil && now.Spec.Suspend && now.DeletionTimestamp == nil {
		s.silence(obj, errSuspended)
	}
	return nil
}

// hear adds what Cluster Autoscaler asks for to a plan. Those whose wishes it has are answered
// when it is on record.
func (s *Steps) hear(obj *clusterv1.KsctlAutoScaler, seen *sight, p *plan) (granted []*request) {
	for _, r := range s.board.take(client.ObjectKeyFromObject(obj)) {
		if r.ctx.Err() != nil {
			continue // it was answered that nothing is done
		}
		c, err := newView(obj, seen, p, s.Clock.Now())
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
			p.grant(x, s.Clock.Now())
		}
		granted = append(granted, r)
	}
	return granted
}

// template is what the next node of a pool would be like.
func template(seen *sight, pool *clusterv1.WorkerPool) (*corev1.Node, clusterv1.TemplateSource) {
	in := nodegroup.TemplateInput{Pool: *pool}
	for i := range seen.fleet.machines {
		if m := &seen.fleet.machines[i]; m.pool == pool.Name && m.ready() {
			in.Node = m.node
			break
		}
	}
	return nodegroup.Template(in)
}
