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
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// ills are what may go wrong around ksctl's own agent.
type ills struct {
	// fail has the agent fail in the midst of what it does.
	fail bool
	// stale has Nodes of deleted machines linger, and not be ready.
	stale bool
	// restart has the controller forget what it remembers, and answers of the agent be lost.
	restart bool
	// lost has the agent not answer, and go on.
	lost bool
	// vanish has Nodes be deleted by hand.
	vanish bool
	// never has machines that never join.
	never bool
	// unready has Nodes be not ready at times.
	unready bool
	// imports has old exports of the state be imported.
	imports bool
}

// model is a cluster, ksctl's own agent, a link to it and an autoscaler in memory. Unlike world, its
// agent does what it was told whether anybody waits for it or not.
type model struct {
	t     *testing.T
	r     *rand.Rand
	ills  ills
	obj   clusterv1.KsctlAutoScaler
	hosts hosts
	board board
	word  word
	now   time.Time
	// slots is the agent's array of workers, nodes those of the cluster by their names.
	slots []*slot
	nodes map[string]*corev1.Node
	// joined is how many nodes have joined so far.
	joined int
	// calls are what the agent has been told and has not done.
	calls []*call
	// sent is the operation that the agent was told of last.
	sent string
	// exported is how many workers the last export of the state has, imported the last import; -1: none.
	exported, imported int32
	held               string
	log                []string
}

const (
	modelSeeds = 40
	modelTicks = 75
	modelTime  = 18 * time.Minute
)

// TestWhateverGoesWrongWithKsctlsOwnAgent lets everybody do as they like. That nothing is done until a
// person says what there is, is allowed where that can't be known.
func TestWhateverGoesWrongWithKsctlsOwnAgent(t *testing.T) {
	for _, x := range []struct {
		mode string
		ills ills
		held int
	}{
		{"quiet", ills{}, 0},
		{"none", ills{fail: true}, modelSeeds / 2},
		{"stale", ills{fail: true, stale: true}, modelSeeds},
		{"restart", ills{fail: true, restart: true}, modelSeeds},
		{"lost", ills{fail: true, lost: true}, modelSeeds},
		{"never", ills{fail: true, never: true}, modelSeeds},
		{"vanish", ills{fail: true, vanish: true}, modelSeeds},
		{"notready", ills{fail: true, unready: true}, modelSeeds},
		{"imports", ills{fail: true, imports: true}, modelSeeds},
		{"all", ills{true, true, true, true, true, true, true, true}, modelSeeds},
	} {
		t.Run(x.mode, func(t *testing.T) {
			t.Parallel()
			var held []uint64
			for seed := range uint64(modelSeeds) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					m := newModel(t, seed, x.ills)
					for range modelTicks {
						m.tick()
					}
					if m.settle(); m.held != "" {
						held = append(held, seed)
					}
				})
			}
			if len(held) > x.held {
				t.Errorf("nothing is scaled any more in %d of %d runs: those of seeds %v", len(held), modelSeeds, held)
			}
		})
	}
}

func newModel(t *testing.T, seed uint64, with ills) *model {
	m := &model{t: t, r: rand.New(rand.NewPCG(seed, 7)), ills: with, hosts: testHosts, nodes: map[string]*corev1.Node{}, now: time.Unix(1_800_000_000, 0), exported: -1, imported: -1}
	m.obj.Name, m.obj.Namespace, m.obj.UID = "as", "ns", "01234567-89ab"
	m.obj.Spec.Pools = testPools
	m.slots = []*slot{{size: "s-1", vm: true}}
	m.join(0)
	m.nodes[m.slots[0].node].Labels[clusterv1.PoolLabel] = "small"
	return m
}

// testHosts are made once: that takes longer than all that a model does.
var testHosts = newHosts("demo")

// say writes down what happens, for when it goes wrong.
func (m *model) say(format string, args ...any) {
	m.log = append(m.log, m.now.UTC().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// wrong fails the test, whose name has the seed.
func (m *model) wrong(format string, args ...any) {
	m.t.Helper()
	m.say(format, args...)
	m.t.Fatal("\n" + strings.Join(m.log[max(len(m.log)-25, 0):], "\n"))
}

// once is true one time of n.
func (m *model) once(n int) bool { return m.r.IntN(n) == 0 }

// tick is a while in which anything may happen.
func (m *model) tick() {
	switch m.r.IntN(6) {
	case 0, 1:
		m.step(increase([]string{"small", "large"}[m.r.IntN(2)], int32(1+m.r.IntN(2)), m.now))
	case 2:
		m.step(m.removeLast())
	default:
		m.step(nil)
	}
	m.work(false)
	m.joins(3)
	m.trouble()
	m.now = m.now.Add(time.Duration(1+m.r.IntN(90)) * time.Second)
}

// trouble is what goes wrong about anything but what the agent does.
func (m *model) trouble() {
	if op := m.obj.Status.Operation; m.ills.lost && atWork(op) && m.once(15) {
		m.silence(op)
	}
	if m.ills.restart && m.once(20) {
		m.restart()
	}
	if s := m.any(); m.ills.vanish && m.nodes[s.node] != nil && m.once(6) {
		m.say("node %s is deleted by hand", s.node)
		delete(m.nodes, s.node)
		s.node = ""
	}
	if node := m.nodes[m.any().node]; m.ills.unready && node != nil && m.once(8) {
		m.ready(node, !nodeReady(node))
	}
	if m.ills.imports {
		switch m.r.IntN(30) {
		case 0:
			m.exported = int32(len(m.slots))
		case 1:
			m.say("an export of %d workers is imported", m.exported)
			m.imported = m.exported
		}
	}
}

// any is one place of the array.
func (m *model) any() *slot {
	if len(m.slots) == 0 {
		return &slot{}
	}
	return m.slots[m.r.IntN(len(m.slots))]
}

// restart is one of the controller: what is not written down is forgotten.
func (m *model) restart() {
	m.say("the controller starts anew")
	m.board, m.sent, m.word = board{}, "", word{}
	for _, c := range m.calls {
		c.lost = true
	}
	if op := m.obj.Status.Operation; op != nil && !atWork(op) {
		m.sent = op.ID
	}
}

// settle lets everything come to its end, and looks at it.
func (m *model) settle() {
	m.say("nothing goes wrong any more")
	m.ills = ills{}
	if m.imported >= 0 {
		m.imported = int32(len(m.slots))
	}
	for range 15 {
		for _, s := range m.slots {
			if node := m.nodes[s.node]; node != nil {
				m.ready(node, true)
			}
		}
		m.step(nil)
		m.work(true)
		m.joins(1)
		m.now = m.now.Add(30 * time.Minute)
	}
	if n := int(m.obj.Status.Workers); m.held == "" && n != len(m.slots) {
		m.wrong("%d workers in the status, and there are %d", n, len(m.slots))
	}
	for _, s := range m.slots {
		if node := m.nodes[s.node]; m.held == "" && node != nil && node.Spec.Unschedulable {
			m.wrong("node %s stays cordoned", node.Name)
		}
	}
}

// step is one reconcile; ask is what Cluster Autoscaler asks for in it.
func (m *model) step(ask func(*nodegroup.Cluster) ([]nodegroup.Change, error)) {
	m.t.Helper()
	seen := m.observe()
	in := facts{mode: mode(&m.obj), spec: &m.obj.Spec, status: &m.obj.Status, fleet: &seen.fleet, word: seen.word, plain: true,
		counted: seen.counted, late: seen.late, within: modelTime, uid: string(m.obj.UID), now: m.now}
	p := newPlan(in)
	if ask != nil {
		view, err := newView(&m.obj, seen, p, m.now)
		if err != nil {
			m.t.Fatal(err)
		}
		changes, _ := ask(view)
		for _, x := range changes {
			p.grant(x, m.now)
		}
	}
	p.choose(in)
	before := m.obj.Status.Operation
	begun := atWork(p.op) && (before == nil || before.ID != p.op.ID)
	p.report(&m.obj, seen)
	m.obj.Status = *m.obj.Status.DeepCopy() // as if it were written and read
	if p.held != m.held {
		m.say("held: %q", p.held)
		m.held = p.held
	}
	m.mark(&seen.fleet, p)
	m.carry(p.op, begun)
}

// observe is as Steps.observe.
func (m *model) observe() *sight {
	c := &clusterv1.KsctlCluster{}
	if m.imported >= 0 {
		c.Status.Facts = &clusterv1.ClusterFacts{Pools: []clusterv1.NodePool{{Role: workerRole, Count: m.imported}}}
	}
	nodes := make([]*corev1.Node, 0, len(m.nodes))
	for _, node := range m.nodes {
		nodes = append(nodes, node.DeepCopy())
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	l := listingOf(answer{plain: true, word: m.word}, c, &m.obj.Status, m.now)
	f := newFleet(m.hosts, m.obj.Spec.Pools, nodes, l)
	said := m.word
	if op := m.obj.Status.Operation; atWork(op) && f.size() > max(op.From, op.DesiredWorkers) && said.id != op.ID {
		said = word{id: op.ID, state: agentFailed, code: CodeNoAnswer, message: "others have made workers meanwhile"}
		for _, c := range m.calls {
			c.lost = true
		}
	}
	late, _ := m.board.joins(client.ObjectKeyFromObject(&m.obj), &f, &m.obj.Status, modelTime, m.now)
	f.lose(late, m.obj.Status.Operation, mode(&m.obj), true)
	return &sight{fleet: f, cluster: c, word: said, plain: true, counted: l.counted, imported: l.imported, late: late}
}
