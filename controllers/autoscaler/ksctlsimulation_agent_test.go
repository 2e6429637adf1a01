package autoscaler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// slot is a place in the agent's array of workers: it may have no machine yet, or none any more.
type slot struct {
	size string
	vm   bool
	// never is true for a machine that never joins; node is as which it has.
	never bool
	node  string
}

// call is what the agent was told.
type call struct {
	op clusterv1.ScaleOperation
	// fail has it fail in the midst, and nobody hears of one that is lost.
	fail, lost bool
}

// carry tells the agent of an operation, as the link does.
func (m *model) carry(op *clusterv1.ScaleOperation, begun bool) {
	m.t.Helper()
	if !atWork(op) || m.sent == op.ID {
		return
	}
	m.sent = op.ID
	switch {
	case begun:
		m.word = word{}
		m.send(op)
	case op.Kind == clusterv1.OperationScaleUp: // the controller has started anew
		m.send(op)
	default:
		m.word = word{id: op.ID, state: agentFailed, code: CodeNoAnswer, message: "the controller has started anew"}
	}
}

// send is a call of the agent: it writes down at once how many workers there are to be.
func (m *model) send(op *clusterv1.ScaleOperation) {
	m.t.Helper()
	m.say("%s %s from %d to %d, and there are %d", op.Kind, op.NodeSize, op.From, op.DesiredWorkers, len(m.slots))
	c := &call{op: *op, fail: m.ills.fail && m.once(4)}
	m.calls = append(m.calls, c)
	to := int(op.DesiredWorkers)
	switch {
	case op.Kind != clusterv1.OperationScaleUp && to > len(m.slots):
		m.wrong("it goes beyond the end of its array")
	case op.Kind != clusterv1.OperationScaleUp:
		return
	case to < len(m.slots):
		m.wrong("it forgets %d machines", len(m.slots)-to)
	case c.fail && m.once(2):
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
			m.wrong("pool %s has %d machines, and maxSize is %d", p.Name, n, p.MaxSize)
		}
	}
}

// work is the agent's: it does some of what it was told, or all.
func (m *model) work(all bool) {
	m.t.Helper()
	var left []*call
	for _, c := range m.calls {
		if !all && !m.once(3) {
			left = append(left, c)
			continue
		}
		if c.op.Kind == clusterv1.OperationScaleUp {
			m.create(c)
		} else {
			m.destroy(c)
		}
		m.say("%s to %d is done, failed %v, lost %v: there are %d", c.op.Kind, c.op.DesiredWorkers, c.fail, c.lost, len(m.slots))
		switch {
		case c.lost:
		case c.fail:
			m.word = word{id: c.op.ID, state: agentFailed, code: CodeFailed, message: "said by the agent"}
		default:
			m.word = word{id: c.op.ID, state: agentSucceeded}
		}
	}
	m.calls = left
}

// skips is true for a machine that a call leaves as it is.
func (m *model) skips(c *call) bool { return c.fail && m.once(2) }

func (m *model) create(c *call) {
	for i := c.op.From; i < c.op.DesiredWorkers && int(i) < len(m.slots); i++ {
		if s := m.slots[i]; !s.vm && !m.skips(c) {
			s.vm, s.never = true, m.ills.never && m.once(5)
		}
	}
}

// destroy deletes machines. The array is shortened when all are gone.
func (m *model) destroy(c *call) {
	m.t.Helper()
	to := int(c.op.DesiredWorkers)
	for i := len(m.slots) - 1; i >= to; i-- {
		if s := m.slots[i]; s.vm && !m.skips(c) {
			m.kill(i, s)
		}
	}
	if !c.fail {
		m.slots = m.slots[:min(to, len(m.slots))]
	}
}

// kill deletes a machine, which nobody may need.
func (m *model) kill(i int, s *slot) {
	m.t.Helper()
	if node := m.nodes[s.node]; node != nil {
		if _, marked := taintedAt(node); !marked && nodeReady(node) {
			m.wrong("worker %d, which is in use, is deleted", i)
		}
		if m.ills.stale && m.once(2) {
			m.ready(node, false)
		} else {
			delete(m.nodes, s.node)
		}
	}
	s.vm, s.node = false, ""
}

// silence has the answer to an operation be lost, while the agent goes on.
func (m *model) silence(op *clusterv1.ScaleOperation) {
	for _, c := range m.calls {
		if c.op.ID == op.ID && !c.lost {
			m.say("the agent does not answer")
			c.lost = true
			m.word = word{id: op.ID, state: agentFailed, code: CodeNoAnswer, message: "no answer"}
		}
	}
}

// leaving is true for a machine that the agent is about to delete.
func (m *model) leaving(i int) bool {
	for _, c := range m.calls {
		if c.op.Kind != clusterv1.OperationScaleUp && i >= int(c.op.DesiredWorkers) {
			return true
		}
	}
	return false
}

// joins has one of n machines join that are to.
func (m *model) joins(n int) {
	for i, s := range m.slots {
		if s.vm && s.node == "" && !s.never && !m.leaving(i) && m.once(n) {
			m.join(i)
		}
	}
}

// join has a machine join, under a name that no other one had.
func (m *model) join(i int) {
	m.joined++
	name := fmt.Sprintf("demo-vm-wp-%d-%05d", i, m.joined)
	m.say("%s joins", name)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelInstanceTypeStable: "k3s"}}, Spec: corev1.NodeSpec{ProviderID: "k3s://" + name}}
	node.CreationTimestamp = metav1.NewTime(m.now).Rfc3339Copy()
	m.ready(node, true)
	m.nodes[name], m.slots[i].node = node, name
}

func (m *model) ready(node *corev1.Node, is bool) {
	c := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(m.now)}
	if is {
		c.Status = corev1.ConditionTrue
	}
	node.Status.Conditions = []corev1.NodeCondition{c}
}

// mark is what a reconcile does to nodes.
func (m *model) mark(f *fleet, p *plan) {
	released, _ := p.released(f, askTime(&m.obj.Spec), m.now)
	for _, x := range marks(f, m.obj.Spec.Pools, func(*machine) bool { return true }, released) {
		node := m.nodes[x.node.Name]
		for name, value := range x.labels {
			node.Labels[name] = fmt.Sprint(value)
		}
		if x.retaint {
			m.say("%s is released", node.Name)
			node.Spec.Taints, node.Spec.Unschedulable = x.taints, node.Spec.Unschedulable && !x.uncordon
		}
	}
	if atWork(p.op) {
		return
	}
	swept, _ := gone(f.strays, m.now)
	for _, node := range swept {
		m.say("%s is swept", node.Name)
		delete(m.nodes, node.Name)
	}
}

// removeLast marks the last worker that is not marked, and asks for its deletion, as Cluster
// Autoscaler does; nil: there is none.
func (m *model) removeLast() func(*nodegroup.Cluster) ([]nodegroup.Change, error) {
	for i := len(m.slots) - 1; i >= 0; i-- {
		node := m.nodes[m.slots[i].node]
		if node == nil || node.Labels[clusterv1.PoolLabel] == "" {
			return nil
		}
		if _, marked := taintedAt(node); marked {
			continue
		}
		node.Spec.Taints, node.Spec.Unschedulable = []corev1.Taint{{Key: toBeDeletedTaint, Value: fmt.Sprint(m.now.Unix())}}, true
		return func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
			changes, err := nodegroup.Delete(c, "ns/as/"+node.Labels[clusterv1.PoolLabel], []nodegroup.Node{{Name: node.Name}})
			if err != nil { // it is used again
				node.Spec.Taints, node.Spec.Unschedulable = nil, false
			}
			return changes, err
		}
	}
	return nil
}
