package autoscaler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

var testPools = []clusterv1.WorkerPool{
	{Name: "small", NodeSize: "s-1", MinSize: 1, MaxSize: 4},
	{Name: "large", NodeSize: "l-1", MinSize: 0, MaxSize: 3},
}

// world is a cluster, its agent and its autoscaler in memory.
type world struct {
	t      *testing.T
	obj    clusterv1.KsctlAutoScaler
	sizes  []string
	joined []bool
	// tainted are the workers that Cluster Autoscaler has marked.
	tainted map[int]bool
	word    word
	late    map[int32]bool
	now     time.Time
	// plain is an agent of ksctl's own; facts are what the imported state has of workers, -1: nothing.
	plain bool
	facts int32
	board board
	// labelled are the workers whose nodes have had a label of their pool put on.
	labelled map[int]string
	// instanceType is what the cluster's own controller has nodes be, others are nodes of no worker.
	instanceType string
	others       []*corev1.Node
}

func newWorld(t *testing.T, sizes ...string) *world {
	w := &world{t: t, sizes: sizes, joined: make([]bool, len(sizes)), tainted: map[int]bool{}, labelled: map[int]string{}, now: time.Unix(1_800_000_000, 0)}
	for i := range w.joined {
		w.joined[i] = true
	}
	w.obj.Name, w.obj.Namespace, w.obj.UID = "as", "ns", "01234567-89ab"
	w.obj.Spec.Pools = testPools
	return w
}

func (w *world) fleet() fleet {
	f, _ := w.look()
	return f
}

// look is what there is, and how many workers the imported state has.
func (w *world) look() (fleet, listing) {
	nodes := slices.Clone(w.others)
	for i, joined := range w.joined {
		if joined {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("demo-vm-wp-%d-abcde", i), UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{}},
				Spec: corev1.NodeSpec{ProviderID: fmt.Sprintf("k3s://%d", i)}}
			for _, p := range testPools {
				if !w.plain && p.NodeSize == w.sizes[i] || w.plain && p.Name == w.labelled[i] {
					n.Labels[clusterv1.PoolLabel] = p.Name
				}
			}
			if w.instanceType != "" {
				n.Labels[corev1.LabelInstanceTypeStable] = w.instanceType
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if w.tainted[i] {
				n.Spec.Taints = []corev1.Taint{{Key: toBeDeletedTaint, Value: fmt.Sprint(w.now.Unix())}}
			}
			nodes = append(nodes, n)
		}
	}
	if w.plain {
		l := listingOf(answer{plain: true, word: w.word}, w.cluster(), &w.obj.Status, w.now)
		return newFleet(testHosts, w.obj.Spec.Pools, nodes, l), l
	}
	return newFleet(testHosts, w.obj.Spec.Pools, nodes, sized(w.sizes...)), listing{}
}

// cluster as it was imported.
func (w *world) cluster() *clusterv1.KsctlCluster {
	c := &clusterv1.KsctlCluster{}
	if w.plain && w.facts >= 0 {
		c.Status.Facts = &clusterv1.ClusterFacts{Pools: []clusterv1.NodePool{{Role: workerRole, Count: w.facts}}}
	}
	return c
}

// step is one reconcile; ask is what Cluster Autoscaler asks for in it.
func (w *world) step(ask ...func(*nodegroup.Cluster) ([]nodegroup.Change, error)) *plan {
	w.t.Helper()
	f, l := w.look()
	if w.plain {
		w.late, _ = w.board.joins(client.ObjectKeyFromObject(&w.obj), &f, &w.obj.Status, 10*time.Minute, w.now)
	}
	f.lose(w.late, w.obj.Status.Operation, mode(&w.obj), w.plain)
	seen := &sight{fleet: f, cluster: w.cluster(), plain: w.plain, counted: l.counted, imported: l.imported, late: w.late}
	in := facts{mode: mode(&w.obj), spec: &w.obj.Spec, status: &w.obj.Status, fleet: &seen.fleet, word: w.word, plain: w.plain, counted: l.counted, late: w.late, within: 10 * time.Minute, uid: string(w.obj.UID), now: w.now}
	p := newPlan(in)
	for _, decide := range ask {
		c, err := newView(&w.obj, seen, p, w.now)
		if err != nil {
			w.t.Fatal(err)
		}
		changes, err := decide(c)
		if err != nil {
			continue
		}
		for _, x := range changes {
			p.grant(x, w.now)
		}
	}
	p.choose(in)
	p.report(&w.obj, seen)
	for i := range f.machines {
		if m := &f.machines[i]; w.plain && m.node != nil && m.pool != "" {
			w.labelled[int(m.index)] = m.pool
		}
	}
	w.check(p)
	return p
}

// check is what holds at each moment, whatever is asked.
func (w *world) check(p *plan) {
	w.t.Helper()
	op := p.op
	if atWork(op) && op.Kind == clusterv1.OperationScaleUp && (op.DesiredWorkers <= op.From || op.State == clusterv1.OperationPending && !w.plain && int(op.From) != len(w.sizes)) {
		w.t.Fatalf("scale-up %+v of %d workers", op, len(w.sizes))
	}
	if atWork(op) && op.State == clusterv1.OperationPending {
		counts := map[string]int32{}
		for i, size := range w.sizes {
			if int32(i) < op.DesiredWorkers {
				counts[size]++
			}
		}
		if n := op.DesiredWorkers - int32(len(w.sizes)); n > 0 {
			counts[op.NodeSize] += n
		}
		for _, pool := range w.obj.Spec.Pools {
			if op.Pool == pool.Name && op.Kind == clusterv1.OperationScaleUp && counts[pool.NodeSize] > pool.MaxSize {
				w.t.Fatalf("pool %s would get %d machines: %+v", pool.Name, counts[pool.NodeSize], op)
			}
		}
	}
	for _, line := range w.obj.Status.Pools {
		if line.Target < 0 {
			w.t.Fatalf("pool %s has the target %d", line.Name, line.Target)
		}
	}
}

func increase(pool string, n int32, now time.Time) func(*nodegroup.Cluster) ([]nodegroup.Change, error) {
	return func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		return nodegroup.Increase(c, "ns/as/"+pool, n, now)
	}
}

// removeLast marks the last worker that is not marked, and asks for its deletion, as Cluster
// Autoscaler does.
func (w *world) removeLast() func(*nodegroup.Cluster) ([]nodegroup.Change, error) {
	last := len(w.sizes) - 1
	for last >= 0 && (w.tainted[last] || !w.joined[last]) {
		last--
	}
	if last >= 0 {
		w.tainted[last] = true
	}
	return func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		if last < 0 {
			return nil, nil
		}
		for _, p := range testPools {
			if p.NodeSize == w.sizes[last] {
				changes, err := nodegroup.Delete(c, "ns/as/"+p.Name, []nodegroup.Node{{Name: fmt.Sprintf("demo-vm-wp-%d-abcde", last)}})
				if err != nil {
					delete(w.tainted, last) // it is used again
				}
				return changes, err
			}
		}
		return nil, nil
	}
}

// carry is the agent at work: it makes or deletes so many machines, and says what it says.
func (w *world) carry(op *clusterv1.ScaleOperation, n int32, state agentState) {
	for range n {
		if op.Kind == clusterv1.OperationScaleUp {
			w.sizes, w.joined = append(w.sizes, op.NodeSize), append(w.joined, false)
		} else {
			w.sizes, w.joined = w.sizes[:len(w.sizes)-1], w.joined[:len(w.joined)-1]
			delete(w.tainted, len(w.sizes))
			delete(w.labelled, len(w.sizes))
		}
	}
	w.word = word{id: op.ID, state: state, code: CodeFailed, message: "said by the agent"}
	if state == agentFailed {
		w.word.code = CodeOutOfResources
	}
}

func (w *world) pool(name string) clusterv1.WorkerPoolStatus {
	w.t.Helper()
	if p := poolStatus(&w.obj.Status, name); p != nil {
		return *p
	}
	w.t.Fatalf("no pool %s in the status", name)
	return clusterv1.WorkerPoolStatus{}
}

func TestScaleUpIsWrittenDownBeforeItIsBegunAndCounted(t *testing.T) {
	w := newWorld(t, "s-1", "s-1")
	p := w.step(increase("small", 2, w.now))
	if op := p.op; op == nil || op.State != clusterv1.OperationPending || op.From != 2 || op.DesiredWorkers != 4 || op.NodeSize != "s-1" {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("small"); got.Target != 4 || got.Creating != 2 || got.LastScale == nil || got.LastScale.From != 2 || got.LastScale.To != 4 {
		t.Fatalf("pool %+v", got)
	}
	w.carry(p.op, 1, agentRunning) // half of it
	w.step()
	if got := w.pool("small"); got.Target != 4 || got.Creating != 2 {
		t.Fatalf("at half: %+v", got)
	}
	w.carry(p.op, 1, agentSucceeded)
	p = w.step()
	if p.op.State != clusterv1.OperationSucceeded || p.ended == nil {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("small"); got.Target != 4 || got.Creating != 2 || got.Change != 0 || got.Registered != 2 {
		t.Fatalf("at the end: %+v", got)
	}
}

func TestFailureIsPlaceholdersAndBackoff(t *testing.T) {
	w := newWorld(t, "s-1")
	p := w.step(increase("small", 3, w.now))
	w.carry(p.op, 1, agentFailed) // one of three came
	p = w.step()
	got := w.pool("small")
	if p.op.State != clusterv1.OperationFailed || got.Target != 4 || got.Change != 0 || got.Backoff == nil || got.Backoff.Missing != 2 || got.Backoff.Code != CodeOutOfResources {
		t.Fatalf("operation %+v, pool %+v", p.op, got)
	}
	if p = w.step(increase("small", 1, w.now)); atWork(p.op) {
		t.Fatal("begun while it backs off")
	}
	// Cluster Autoscaler takes note of both.
	w.step(func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		var nodes []nodegroup.Node
		for _, x := range nodegroup.Instances(c, "ns/as/small") {
			if x.GetStatus().GetErrorInfo() != nil {
				nodes = append(nodes, nodegroup.Node{Name: x.GetId(), ProviderID: x.GetId()})
			}
		}
		return nodegroup.Delete(c, "ns/as/small", nodes)
	})
	if got = w.pool("small"); got.Target != 2 || got.Backoff.Missing != 0 {
		t.Fatalf("after: %+v", got)
	}
	w.now = w.now.Add(2 * firstBackoff)
	if p = w.step(increase("small", 1, w.now)); !atWork(p.op) {
		t.Fatal("not begun after the back-off")
	}
}

func TestSuccessThatIsNoneIsAFailure(t *testing.T) {
	w := newWorld(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	w.carry(p.op, 0, agentSucceeded)
	p = w.step()
	if got := w.pool("small"); p.op.State != clusterv1.OperationFailed || got.Backoff == nil || got.Backoff.Code != CodeNotDone || got.Backoff.Missing != 1 {
		t.Fatalf("operation %+v, pool %+v", p.op, got)
	}
}

func TestOnlyTheTailGoes(t *testing.T) {
	w := newWorld(t, "s-1", "l-1", "s-1")
	w.tainted[1], w.tainted[2] = true, true
	del := func(i int, pool string) func(*nodegroup.Cluster) ([]nodegroup.Change, error) {
		return func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
			return nodegroup.Delete(c, "ns/as/"+pool, []nodegroup.Node{{Name: fmt.Sprintf("demo-vm-wp-%d-abcde", i)}})
		}
	}
	p := w.step(del(2, "small"), del(1, "large"))
	if p.op == nil || p.op.Kind != clusterv1.OperationScaleDown || p.op.Pool != "small" || p.op.DesiredWorkers != 2 {
		t.Fatalf("operation %+v", p.op)
	}
	w.carry(p.op, 1, agentSucceeded)
	w.step()
	w.now = w.now.Add(time.Second)
	p = w.step()
	// The second one that was asked for is another pool's.
	if p.op.Kind != clusterv1.OperationScaleDown || p.op.Pool != "large" || p.op.DesiredWorkers != 1 {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("small"); got.Target != 1 {
		t.Fatalf("small: %+v", got)
	}
}

func TestFailedDeletionLeavesTheMachine(t *testing.T) {
	w := newWorld(t, "s-1", "s-1")
	p := w.step(w.removeLast())
	w.carry(p.op, 0, agentFailed)
	w.step()
	if got := w.pool("small"); got.Target != 2 || got.Change != 0 || got.Backoff == nil {
		t.Fatalf("pool %+v", got)
	}
}

func TestMachinesOfAnotherSizeAreMadeOnce(t *testing.T) {
	w := newWorld(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	op := *p.op
	op.NodeSize = "x-9" // what it makes instead
	w.carry(&op, 1, agentSucceeded)
	if p = w.step(); p.op.State != clusterv1.OperationFailed || w.pool("small").Backoff.Code != CodeOtherSize {
		t.Fatalf("operation %+v", p.op)
	}
	for range 10 {
		w.now = w.now.Add(time.Hour)
		if p = w.step(increase("small", 1, w.now)); atWork(p.op) {
			t.Fatalf("another one is made: %+v", p.op)
		}
	}
	w = newWorld(t, "S-1") // the cloud's own spelling
	if w.step(); w.pool("small").Target != 1 || w.obj.Status.UnmanagedWorkers != 0 {
		t.Fatalf("%+v", w.pool("small"))
	}
}

func TestAPoolThatIsRenamedInTheMidstGetsNoMore(t *testing.T) {
	w := newWorld(t)
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "s-1", MinSize: 3, MaxSize: 9}}
	p := w.step()
	w.carry(p.op, 1, agentRunning)
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "other", NodeSize: "s-1", MinSize: 3, MaxSize: 9}}
	w.step()
	if got := w.pool("other"); got.Target != 3 {
		t.Fatalf("in the midst: %+v", got)
	}
	w.carry(p.op, 2, agentSucceeded)
	if p = w.step(); atWork(p.op) || w.pool("other").Target != 3 {
		t.Fatalf("pool %+v, operation %+v", w.pool("other"), p.op)
	}
}

func TestADeletionOfAMachineThatWentOtherwiseHitsNoOther(t *testing.T) {
	w := newWorld(t, "s-1", "s-1", "s-1")
	w.obj.Status.Pools = []clusterv1.WorkerPoolStatus{{Name: "small", Change: -1, LastScale: &clusterv1.PoolScale{Time: metav1.NewTime(w.now), From: 4, To: 3}}}
	p := w.step()
	if p.op != nil { // the last one is not marked
		t.Fatalf("operation %+v", p.op)
	}
	w.now = w.now.Add(2 * wishTime)
	if p = w.step(); p.op != nil || w.pool("small").Target != 3 {
		t.Fatalf("operation %+v, pool %+v", p.op, w.pool("small"))
	}
}

func TestANodeThatVanishesIsNoMachineThatNeverJoined(t *testing.T) {
	w := newWorld(t, "s-1", "s-1")
	var b board
	op := operation("one", 1, 2)
	op.State, op.EndedAt = clusterv1.OperationSucceeded, &metav1.Time{Time: w.now.Add(-time.Minute)}
	op.StartedAt = metav1.NewTime(w.now.Add(-time.Hour))
	w.obj.Status.Operation = op
	f := w.fleet()
	b.joins(testKey, &f, &w.obj.Status, 10*time.Minute, w.now)
	w.joined[1] = false
	f = w.fleet()
	if late, _ := b.joins(testKey, &f, &w.obj.Status, 10*time.Minute, w.now); len(late) != 0 {
		t.Fatalf("late: %v", late)
	}
	if late, _ := b.joins(testKey, &f, &w.obj.Status, 10*time.Minute, w.now.Add(time.Hour)); !late[1] {
		t.Fatal("never late")
	}
	var other board // of another process, which has not seen it join
	if late, _ := other.joins(testKey, &f, &w.obj.Status, 10*time.Minute, w.now); !late[1] {
		t.Fatal("made an hour ago, and not late")
	}
}

func TestMinSizeOfTheSpecActsAtOnce(t *testing.T) {
	w := newWorld(t, "s-1")
	w.step()
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "s-1", MinSize: 3, MaxSize: 4}}
	p := w.step()
	if !atWork(p.op) || p.op.DesiredWorkers != 3 {
		t.Fatalf("operation %+v", p.op)
	}
	no := false
	w = newWorld(t)
	w.obj.Spec.ScaleUp = &clusterv1.ScaleUp{EnforceMinSize: &no}
	if p := w.step(); p.op != nil {
		t.Fatalf("operation %+v", p.op)
	}
}

func TestOffDropsWhatHasNotBegun(t *testing.T) {
	w := newWorld(t, "s-1", "s-1", "s-1")
	p := w.step(w.removeLast())
	w.obj.Spec.Mode = clusterv1.ScalingOff
	w.step(increase("large", 1, w.now))
	if got := w.pool("small"); got.Target != 2 || got.Change != 0 || got.Deleting != 1 {
		t.Fatalf("what has begun: %+v", got)
	}
	w.carry(p.op, 1, agentSucceeded)
	w.step()
	if p = w.step(w.removeLast(), increase("large", 1, w.now)); atWork(p.op) {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("large"); got.Target != 0 {
		t.Fatalf("large: %+v", got)
	}
}

func TestMachinesOfOthersAreTakenIn(t *testing.T) {
	w := newWorld(t, "s-1")
	w.step()
	w.sizes, w.joined = append(w.sizes, "s-1", "x-9"), append(w.joined, true, true)
	p := w.step()
	if got := w.pool("small"); got.Target != 2 || p.op != nil || w.obj.Status.UnmanagedWorkers != 1 {
		t.Fatalf("pool %+v, operation %+v, status %+v", got, p.op, w.obj.Status)
	}
	// The last one is nobody's: no other may go.
	if p = w.step(func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		return nodegroup.Delete(c, "ns/as/small", []nodegroup.Node{{Name: "demo-vm-wp-1-abcde"}})
	}); p.op != nil {
		t.Fatalf("operation %+v", p.op)
	}
}

func TestMachinesThatTakeTooLongAreSaidToBeMissing(t *testing.T) {
	w := newWorld(t, "s-1")
	p := w.step(increase("small", 2, w.now))
	w.carry(p.op, 1, agentRunning)
	w.joined[1] = true
	w.now = w.now.Add(time.Hour)
	for range 2 { // it is said once
		p = w.step()
		if got := w.pool("small"); got.Target != 3 || got.Backoff == nil || got.Backoff.Code != CodeSlow || got.Backoff.Missing != 1 {
			t.Fatalf("pool %+v", got)
		}
	}
	w.carry(p.op, 1, agentSucceeded)
	p = w.step()
	// The one that has joined stays, the other one goes.
	if p.op.Kind != clusterv1.OperationScaleDown || p.op.From != 3 || p.op.DesiredWorkers != 2 {
		t.Fatalf("operation %+v", p.op)
	}
}

func TestMachineThatIsLateInTheMiddleIsNobodys(t *testing.T) {
	w := newWorld(t, "s-1", "s-1", "s-1")
	w.joined[1] = false
	f := w.fleet()
	f.lose(map[int32]bool{1: true}, nil, clusterv1.ScalingAuto, false)
	if !f.machines[1].lost || f.machines[0].lost || f.machines[2].lost {
		t.Fatalf("%+v", f.machines)
	}
	f = w.fleet()
	w.joined[2] = false
	if f = w.fleet(); f.size() != 3 {
		t.Fatal(f.size())
	}
	made := operation("one", 1, 3)
	f.lose(map[int32]bool{1: true, 2: true}, made, clusterv1.ScalingAuto, false) // they are at the end, and were made last
	if f.machines[1].lost || f.machines[2].lost {
		t.Fatalf("%+v", f.machines)
	}
}

func TestMachineThatNeverJoinsIsDeleted(t *testing.T) {
	w := newWorld(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	w.carry(p.op, 1, agentSucceeded)
	w.step()
	w.now = w.now.Add(time.Hour)
	w.late = map[int32]bool{1: true}
	p = w.step()
	if p.op.Kind != clusterv1.OperationScaleDown || p.op.DesiredWorkers != 1 {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("small"); got.Target != 2 || got.Backoff == nil || got.Backoff.Code != CodeJoinTimeout || got.Backoff.Missing != 1 {
		t.Fatalf("pool %+v", got)
	}
}

// TestWhateverIsAsked has Cluster Autoscaler, the agent and people do as they like.
func TestWhateverIsAsked(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, "s-1")
			w.obj.Spec.Limits = &clusterv1.ScalingLimits{MaxNodesTotal: 5}
			w.late = map[int32]bool{}
			for range 200 {
				w.chaos(r)
			}
			w.calm()
		})
	}
}

func (w *world) chaos(r *rand.Rand) {
	var asks []func(*nodegroup.Cluster) ([]nodegroup.Change, error)
	for range r.IntN(3) {
		switch r.IntN(4) {
		case 0, 1:
			asks = append(asks, increase([]string{"small", "large"}[r.IntN(2)], int32(r.IntN(9)-1), w.now))
		case 2:
			asks = append(asks, w.removeLast())
		case 3:
			pool := []string{"small", "large"}[r.IntN(2)]
			asks = append(asks, func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
				return nodegroup.Decrease(c, "ns/as/"+pool, -int32(r.IntN(3)))
			})
		}
	}
	w.obj.Spec.Mode = []clusterv1.ScalingMode{"", "", "", clusterv1.ScalingUpOnly, clusterv1.ScalingOff}[r.IntN(5)]
	p := w.step(asks...)
	if len(w.sizes) > 5 {
		w.t.Fatalf("%d nodes, and maxNodesTotal is 5", len(w.sizes))
	}
	if op := p.op; atWork(op) {
		left := op.DesiredWorkers - int32(len(w.sizes))
		if left < 0 {
			left = -left
		}
		switch r.IntN(5) {
		case 0:
			w.carry(op, min(left, 1), agentRunning)
		case 1:
			w.carry(op, int32(r.IntN(int(left)+1)), agentFailed)
		case 2:
			w.carry(op, int32(r.IntN(int(left)+1)), agentSucceeded) // it may be a lie
		case 3:
			w.carry(op, left, agentSucceeded)
		}
	}
	for i := range w.joined {
		w.joined[i] = w.joined[i] || !w.late[int32(i)] && r.IntN(3) == 0
	}
	w.never(r)
	w.step() // an operation ends
	w.step() // another one begins
	w.step(w.notStuck)
	w.now = w.now.Add(time.Duration(r.IntN(120)) * time.Second)
}

// calm lets everything come to its end, and looks at it.
func (w *world) calm() {
	w.obj.Spec.Mode, w.late = clusterv1.ScalingAuto, nil
	for range 20 {
		w.now = w.now.Add(2 * time.Hour)
		if p := w.step(); atWork(p.op) {
			n := p.op.DesiredWorkers - int32(len(w.sizes))
			w.carry(p.op, max(n, -n), agentSucceeded)
		}
		for i := range w.joined {
			w.joined[i] = true
		}
	}
	counts := map[string]int32{}
	for _, size := range w.sizes {
		counts[size]++
	}
	for _, pool := range w.obj.Spec.Pools {
		got := w.pool(pool.Name)
		if got.Target != counts[pool.NodeSize] || got.Change != 0 || got.Target < pool.MinSize || got.Target > pool.MaxSize {
			w.t.Fatalf("pool %s: %+v with %d machines", pool.Name, got, counts[pool.NodeSize])
		}
	}
}

// TestAMachineThatJoinsAfterAllIsNotMadeTwice: Cluster Autoscaler takes note that it could not be had
// when it has joined, and the agent is still at it.
func TestAMachineThatJoinsAfterAllIsNotMadeTwice(t *testing.T) {
	w := newWorld(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	w.carry(p.op, 1, agentRunning)
	w.now = w.now.Add(time.Hour)
	w.step()
	var failed []nodegroup.Node
	w.step(func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		for _, x := range nodegroup.Instances(c, "ns/as/small") {
			if x.GetStatus().GetErrorInfo() != nil {
				failed = append(failed, nodegroup.Node{Name: x.Id, ProviderID: x.Id})
			}
		}
		return nil, nil
	})
	if len(failed) != 1 {
		t.Errorf("%d machines could not be had", len(failed))
	}
	w.joined[1] = true
	p = w.step(func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		return nodegroup.Delete(c, "ns/as/small", failed)
	})
	if got := w.pool("small"); got.Target != 2 {
		t.Errorf("pool %+v", got)
	}
	w.carry(p.op, 0, agentSucceeded)
	w.now = w.now.Add(time.Hour)
	p = w.step()
	if got := w.pool("small"); got.Target != 2 || got.Change != 0 || atWork(p.op) {
		t.Fatalf("pool %+v, operation %+v", got, p.op)
	}
}
