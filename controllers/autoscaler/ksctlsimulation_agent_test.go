package autoscaler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// slot is a position in the agent's array of workers. It may have no machine yet, or no longer.
type slot struct {
	size string
	vm   bool
	// neverJoins is true for a machine that never joins. node is the name of its node; "" if it has
	// not joined.
	neverJoins bool
	node       string
}

// call is a call of the agent.
type call struct {
	op clusterv1.ScaleOperation
	// fail makes the call fail halfway. The response of a lost call never arrives.
	fail, lost bool
}

// runOperation sends an operation to the agent, as agentSession does.
func (m *ksctlSimulation) runOperation(op *clusterv1.ScaleOperation, begun bool) {
	m.t.Helper()
	if !session.IsInProgress(op) || m.sent == op.ID {
		return
	}
	m.sent = op.ID
	switch {
	case begun:
		m.reported = session.OperationStatus{}
		m.send(op)
	case op.Kind == clusterv1.OperationScaleUp: // the controller was restarted
		m.send(op)
	default:
		m.reported = session.OperationStatus{ID: op.ID, Phase: session.Failed, Code: clusterv1.CodeNoAnswer,
			Message: "the controller was restarted"}
	}
}

// send starts a call of the agent, which records the new number of workers at once.
func (m *ksctlSimulation) send(op *clusterv1.ScaleOperation) {
	m.t.Helper()
	m.logf("%s %s from %d to %d, currently %d", op.Kind, op.NodeSize, op.From, op.DesiredWorkers, len(m.slots))
	c := &call{op: *op, fail: m.faults.fail && m.oneIn(4)}
	m.calls = append(m.calls, c)
	to := int(op.DesiredWorkers)
	switch {
	case op.Kind != clusterv1.OperationScaleUp && to > len(m.slots):
		m.failf("a deletion goes beyond the end of the array")
	case op.Kind != clusterv1.OperationScaleUp:
		return
	case to < len(m.slots):
		m.failf("the agent forgets %d machines", len(m.slots)-to)
	case c.fail && m.oneIn(2):
		return
	}
	for len(m.slots) < to {
		m.slots = append(m.slots, &slot{size: op.NodeSize})
	}
	counts := map[string]int32{}
	for _, s := range m.slots {
		counts[s.size]++
	}
	for _, p := range m.obj.Spec.Pools {
		if n := counts[p.NodeSize]; p.NodeSize == op.NodeSize && n > p.MaxSize {
			m.failf("pool %s has %d machines, but maxSize is %d", p.Name, n, p.MaxSize)
		}
	}
}

// runCalls completes some of the calls in progress, or all.
func (m *ksctlSimulation) runCalls(all bool) {
	m.t.Helper()
	var left []*call
	for _, c := range m.calls {
		if !all && !m.oneIn(3) {
			left = append(left, c)
			continue
		}
		if c.op.Kind == clusterv1.OperationScaleUp {
			m.create(c)
		} else {
			m.destroy(c)
		}
		m.logf("%s to %d is done, failed %v, lost %v: now %d", c.op.Kind, c.op.DesiredWorkers, c.fail, c.lost,
			len(m.slots))
		switch {
		case c.lost:
		case c.fail:
			m.reported = session.OperationStatus{ID: c.op.ID, Phase: session.Failed, Code: clusterv1.CodeFailed,
				Message: "message of the agent"}
		default:
			m.reported = session.OperationStatus{ID: c.op.ID, Phase: session.Succeeded}
		}
	}
	m.calls = left
}

// skips reports, at random, whether a failing call skips a machine.
func (m *ksctlSimulation) skips(c *call) bool { return c.fail && m.oneIn(2) }

func (m *ksctlSimulation) create(c *call) {
	for i := c.op.From; i < c.op.DesiredWorkers && int(i) < len(m.slots); i++ {
		if s := m.slots[i]; !s.vm && !m.skips(c) {
			s.vm, s.neverJoins = true, m.faults.neverJoin && m.oneIn(5)
		}
	}
}

// destroy deletes machines. The array is shortened only if the call succeeds.
func (m *ksctlSimulation) destroy(c *call) {
	m.t.Helper()
	to := int(c.op.DesiredWorkers)
	for i := len(m.slots) - 1; i >= to; i-- {
		if s := m.slots[i]; s.vm && !m.skips(c) {
			m.deleteMachine(i, s)
		}
	}
	if !c.fail {
		m.slots = m.slots[:min(to, len(m.slots))]
	}
}

// deleteMachine deletes a machine. It fails the test if the machine is in use.
func (m *ksctlSimulation) deleteMachine(i int, s *slot) {
	m.t.Helper()
	if node := m.nodes[s.node]; node != nil {
		if _, marked := taintedAt(node); !marked && nodeReady(node) {
			m.failf("worker %d is deleted while it is in use", i)
		}
		if m.faults.staleNodes && m.oneIn(2) {
			m.setReady(node, false)
		} else {
			delete(m.nodes, s.node)
		}
	}
	s.vm, s.node = false, ""
}

// loseResponse drops the response of an operation, which the agent continues.
func (m *ksctlSimulation) loseResponse(op *clusterv1.ScaleOperation) {
	for _, c := range m.calls {
		if c.op.ID == op.ID && !c.lost {
			m.logf("the response of the agent is lost")
			c.lost = true
			m.reported = session.OperationStatus{ID: op.ID, Phase: session.Failed, Code: clusterv1.CodeNoAnswer,
				Message: "no answer"}
		}
	}
}

// beingDeleted reports whether a call in progress deletes the machine.
func (m *ksctlSimulation) beingDeleted(i int) bool {
	for _, c := range m.calls {
		if c.op.Kind != clusterv1.OperationScaleUp && i >= int(c.op.DesiredWorkers) {
			return true
		}
	}
	return false
}

// joinSome lets one of n machines join, of those that can.
func (m *ksctlSimulation) joinSome(n int) {
	for i, s := range m.slots {
		if s.vm && s.node == "" && !s.neverJoins && !m.beingDeleted(i) && m.oneIn(n) {
			m.join(i)
		}
	}
}

// join lets a machine join, with a new node name.
func (m *ksctlSimulation) join(i int) {
	m.joined++
	name := fmt.Sprintf("demo-vm-wp-%d-%05d", i, m.joined)
	m.logf("%s joins", name)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		Labels: map[string]string{corev1.LabelInstanceTypeStable: "k3s"}},
		Spec: corev1.NodeSpec{ProviderID: "k3s://" + name}}
	node.CreationTimestamp = metav1.NewTime(m.now).Rfc3339Copy()
	m.setReady(node, true)
	m.nodes[name], m.slots[i].node = node, name
}

func (m *ksctlSimulation) setReady(node *corev1.Node, is bool) {
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(m.now)}
	if is {
		c.Status = corev1.ConditionTrue
	}
	node.Status.Conditions = []corev1.NodeCondition{c}
}

// updateNodes changes and deletes nodes as a reconcile does.
func (m *ksctlSimulation) updateNodes(f *machines, p *scalingPlan) {
	released, _ := p.staleTaints(f, deletionRequestTimeout(&m.obj.Spec), m.now)
	for _, x := range nodeChanges(f, m.obj.Spec.Pools, func(*machine) bool { return true }, released) {
		node := m.nodes[x.node.Name]
		for name, value := range x.labels {
			node.Labels[name] = fmt.Sprint(value)
		}
		if x.setTaints {
			m.logf("the taints of %s are changed", node.Name)
			node.Spec.Taints, node.Spec.Unschedulable = x.taints, node.Spec.Unschedulable && !x.uncordon
		}
	}
	if session.IsInProgress(p.op) {
		return
	}
	swept, _ := deletableNodes(f.orphanedNodes, m.now)
	for _, node := range swept {
		m.logf("orphaned node %s is deleted", node.Name)
		delete(m.nodes, node.Name)
	}
}

// removeLast taints the last worker that is not tainted, and returns the request for its deletion,
// as Cluster Autoscaler does; nil if there is none.
func (m *ksctlSimulation) removeLast() func(*nodegroup.Cluster) ([]nodegroup.Change, error) {
	for i := len(m.slots) - 1; i >= 0; i-- {
		node := m.nodes[m.slots[i].node]
		if node == nil || node.Labels[clusterv1.PoolLabel] == "" {
			return nil
		}
		if _, marked := taintedAt(node); marked {
			continue
		}
		node.Spec.Taints,
			node.Spec.Unschedulable = []corev1.Taint{{Key: toBeDeletedTaint, Value: fmt.Sprint(m.now.Unix())}}, true
		return func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
			changes, err := nodegroup.PlanDelete(c, "ns/as/"+node.Labels[clusterv1.PoolLabel],
				[]nodegroup.Node{{Name: node.Name}})
			if err != nil { // the node is in use again
				node.Spec.Taints, node.Spec.Unschedulable = nil, false
			}
			return changes, err
		}
	}
	return nil
}
