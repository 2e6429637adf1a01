package autoscaler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// faults are the faults that the simulation injects.
type faults struct {
	// fail: calls of the agent fail halfway.
	fail bool
	// staleNodes: the Nodes of deleted machines remain, and are not ready.
	staleNodes bool
	// restart: the controller loses its in-memory state, and the responses of the agent.
	restart bool
	// lostResponses: responses of the agent are lost, while it continues.
	lostResponses bool
	// deletedNodes: Nodes are deleted manually.
	deletedNodes bool
	// neverJoin: some machines never join.
	neverJoin bool
	// unreadyNodes: Nodes are not ready at times.
	unreadyNodes bool
	// staleImports: old exports of the state are imported.
	staleImports bool
}

// ksctlSimulation is a cluster, ksctl's own agent, a session with it and a KsctlAutoScaler in
// memory. Unlike in simulation, the agent completes its calls even if the controller no longer
// waits for the response.
type ksctlSimulation struct {
	t           *testing.T
	r           *rand.Rand
	faults      faults
	obj         clusterv1.KsctlAutoScaler
	workerNames workerNames
	state       entry
	reported    session.OperationStatus
	now         time.Time
	// slots is the agent's array of workers. nodes are the nodes of the cluster by name.
	slots []*slot
	nodes map[string]*corev1.Node
	// joined is the number of nodes that have joined so far.
	joined int
	// calls are the calls of the agent that are in progress.
	calls []*call
	// sent is the ID of the operation that was sent to the agent last.
	sent string
	// exported is the number of workers in the last export of the state, imported the one in the
	// last import; -1 if there is none.
	exported, imported int32
	blocked            string
	log                []string
}

const (
	simulationSeeds = 40
	simulationTicks = 75
)

// TestKsctlAgentWithRandomFaults injects random faults. In runs where the number of workers cannot
// be determined, scaling may stay blocked until a user corrects it.
func TestKsctlAgentWithRandomFaults(t *testing.T) {
	for _, x := range []struct {
		mode       string
		ills       faults
		maxBlocked int
	}{
		{"no faults", faults{}, 0},
		{"failed calls", faults{fail: true}, simulationSeeds / 2},
		{"stale nodes", faults{fail: true, staleNodes: true}, simulationSeeds},
		{"restarts", faults{fail: true, restart: true}, simulationSeeds},
		{"lost responses", faults{fail: true, lostResponses: true}, simulationSeeds},
		{"machines that never join", faults{fail: true, neverJoin: true}, simulationSeeds},
		{"deleted nodes", faults{fail: true, deletedNodes: true}, simulationSeeds},
		{"unready nodes", faults{fail: true, unreadyNodes: true}, simulationSeeds},
		{"stale imports", faults{fail: true, staleImports: true}, simulationSeeds},
		{"all", faults{true, true, true, true, true, true, true, true}, simulationSeeds},
	} {
		t.Run(x.mode, func(t *testing.T) {
			t.Parallel()
			var blocked []uint64
			for seed := range uint64(simulationSeeds) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					m := newKsctlSimulation(t, seed, x.ills)
					for range simulationTicks {
						m.tick()
					}
					if m.converge(); m.blocked != "" {
						blocked = append(blocked, seed)
					}
				})
			}
			if len(blocked) > x.maxBlocked {
				t.Errorf("scaling is blocked at the end of %d of %d runs, with seeds %v", len(blocked), simulationSeeds,
					blocked)
			}
		})
	}
}

func newKsctlSimulation(t *testing.T, seed uint64, with faults) *ksctlSimulation {
	m := &ksctlSimulation{t: t, r: rand.New(rand.NewPCG(seed, 7)), faults: with, workerNames: testWorkerNames,
		nodes: map[string]*corev1.Node{}, now: time.Unix(1_800_000_000, 0), exported: -1, imported: -1}
	m.obj.Name, m.obj.Namespace, m.obj.UID = "as", "ns", "01234567-89ab"
	m.obj.Spec.Pools = testPools
	m.slots = []*slot{{size: "s-1", vm: true}}
	m.join(0)
	m.nodes[m.slots[0].node].Labels[clusterv1.PoolLabel] = "small"
	return m
}

// testWorkerNames is shared, because compiling the pattern takes longer than a whole simulation.
var testWorkerNames = newWorkerNames("demo")

// logf adds a line to the log, which failf prints.
func (m *ksctlSimulation) logf(format string, args ...any) {
	m.log = append(m.log, m.now.UTC().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// failf fails the test and prints the end of the log. The name of the test contains the seed.
func (m *ksctlSimulation) failf(format string, args ...any) {
	m.t.Helper()
	m.logf(format, args...)
	m.t.Fatal("\n" + strings.Join(m.log[max(len(m.log)-25, 0):], "\n"))
}

// oneIn returns true with a probability of 1/n.
func (m *ksctlSimulation) oneIn(n int) bool { return m.r.IntN(n) == 0 }

// tick runs one reconcile with a random request, then lets the agent, the machines and the faults
// progress.
func (m *ksctlSimulation) tick() {
	switch m.r.IntN(6) {
	case 0, 1:
		m.step(increase([]string{"small", "large"}[m.r.IntN(2)], int32(1+m.r.IntN(2)), m.now))
	case 2:
		m.step(m.removeLast())
	default:
		m.step(nil)
	}
	m.runCalls(false)
	m.joinSome(3)
	m.injectFaults()
	m.now = m.now.Add(time.Duration(1+m.r.IntN(90)) * time.Second)
}

// injectFaults injects the faults that are not failures of calls.
func (m *ksctlSimulation) injectFaults() {
	if op := m.obj.Status.Operation; m.faults.lostResponses && session.IsInProgress(op) && m.oneIn(15) {
		m.loseResponse(op)
	}
	if m.faults.restart && m.oneIn(20) {
		m.restart()
	}
	if s := m.randomSlot(); m.faults.deletedNodes && m.nodes[s.node] != nil && m.oneIn(6) {
		m.logf("node %s is deleted manually", s.node)
		delete(m.nodes, s.node)
		s.node = ""
	}
	if node := m.nodes[m.randomSlot().node]; m.faults.unreadyNodes && node != nil && m.oneIn(8) {
		m.setReady(node, !nodeReady(node))
	}
	if m.faults.staleImports {
		switch m.r.IntN(30) {
		case 0:
			m.exported = int32(len(m.slots))
		case 1:
			m.logf("an export of %d workers is imported", m.exported)
			m.imported = m.exported
		}
	}
}

// randomSlot returns a random slot of the array.
func (m *ksctlSimulation) randomSlot() *slot {
	if len(m.slots) == 0 {
		return &slot{}
	}
	return m.slots[m.r.IntN(len(m.slots))]
}

// restart restarts the controller: everything that is not in the status is lost.
func (m *ksctlSimulation) restart() {
	m.logf("the controller restarts")
	m.state, m.sent, m.reported = entry{}, "", session.OperationStatus{}
	for _, c := range m.calls {
		c.lost = true
	}
	if op := m.obj.Status.Operation; op != nil && !session.IsInProgress(op) {
		m.sent = op.ID
	}
}

// converge reconciles without further faults and checks the result.
func (m *ksctlSimulation) converge() {
	m.logf("no more faults")
	m.faults = faults{}
	if m.imported >= 0 {
		m.imported = int32(len(m.slots))
	}
	for range 15 {
		for _, s := range m.slots {
			if node := m.nodes[s.node]; node != nil {
				m.setReady(node, true)
			}
		}
		m.step(nil)
		m.runCalls(true)
		m.joinSome(1)
		m.now = m.now.Add(30 * time.Minute)
	}
	if n := int(m.obj.Status.Workers); m.blocked == "" && n != len(m.slots) {
		m.failf("%d workers in the status, want %d", n, len(m.slots))
	}
	for _, s := range m.slots {
		if node := m.nodes[s.node]; m.blocked == "" && node != nil && node.Spec.Unschedulable {
			m.failf("node %s stays cordoned", node.Name)
		}
	}
}

// step runs one reconcile with a request of Cluster Autoscaler; nil if there is none.
func (m *ksctlSimulation) step(ask func(*nodegroup.Cluster) ([]nodegroup.Change, error)) {
	m.t.Helper()
	seen := m.observe()
	p := newPlan(&m.obj, seen, m.now, func(p *scalingPlan) {
		if ask == nil {
			return
		}
		view, err := toCluster(&m.obj, seen, p, m.now)
		if err != nil {
			m.t.Fatal(err)
		}
		changes, _ := ask(view)
		for _, x := range changes {
			p.applyChange(x, m.now)
		}
	})
	before := m.obj.Status.Operation
	begun := session.IsInProgress(p.op) && (before == nil || before.ID != p.op.ID)
	p.writeStatus(&m.obj, seen)
	m.obj.Status = *m.obj.Status.DeepCopy() // simulates a write and a read
	if p.blocked != m.blocked {
		m.logf("blocked: %q", p.blocked)
		m.blocked = p.blocked
	}
	m.updateNodes(&seen.machines, p)
	m.runOperation(p.op, begun)
}

// observe returns what a reconcile observes.
func (m *ksctlSimulation) observe() *observation {
	c := &clusterv1.KsctlCluster{}
	if m.imported >= 0 {
		c.Status.Facts = &clusterv1.ClusterFacts{Pools: []clusterv1.NodePool{{Role: workerRole, Count: m.imported}}}
	}
	nodes := make([]*corev1.Node, 0, len(m.nodes))
	for _, node := range m.nodes {
		nodes = append(nodes, node.DeepCopy())
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	seen := &observation{cluster: c, workerNames: m.workerNames, nodes: nodes}
	seen.addReport(&m.obj, session.Report{KsctlAgent: true, Operation: m.reported}, &m.state, m.now)
	if seen.reported != m.reported { // given up, because others created workers
		for _, c := range m.calls {
			c.lost = true
		}
	}
	return seen
}
