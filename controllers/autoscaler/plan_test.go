package autoscaler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

var testPools = []clusterv1.WorkerPool{
	{Name: "small", NodeSize: "s-1", MinSize: 1, MaxSize: 4},
	{Name: "large", NodeSize: "l-1", MinSize: 0, MaxSize: 3},
}

// simulation is a cluster, its agent and its KsctlAutoScaler in memory.
type simulation struct {
	t      *testing.T
	obj    clusterv1.KsctlAutoScaler
	sizes  []string
	joined []bool
	// tainted contains the indexes of the workers that Cluster Autoscaler has tainted.
	tainted  map[int]bool
	reported session.OperationStatus
	overdue  map[int32]bool
	now      time.Time
	// ksctlAgent is true for ksctl's own agent. importedWorkers is the number of workers in the
	// imported state; -1 if there is none.
	ksctlAgent      bool
	importedWorkers int32
	state           entry
	// labeled has the pool labels that reconciles have set on nodes, by index.
	labeled map[int]string
	// instanceType is the instance type label of all nodes. others are nodes that are not workers.
	instanceType string
	others       []*corev1.Node
}

func newSimulation(t *testing.T, sizes ...string) *simulation {
	w := &simulation{t: t, sizes: sizes, joined: make([]bool, len(sizes)), tainted: map[int]bool{},
		labeled: map[int]string{}, now: time.Unix(1_800_000_000, 0)}
	for i := range w.joined {
		w.joined[i] = true
	}
	w.obj.Name, w.obj.Namespace, w.obj.UID = "as", "ns", "01234567-89ab"
	w.obj.Spec.Pools = testPools
	// Machines must have joined after 9/10 of it: 10 minutes.
	w.obj.Spec.ScaleUp = &clusterv1.ScaleUp{MaxNodeProvisionTime: &metav1.Duration{Duration: 10*time.Minute*10/9 + 1}}
	return w
}

func (w *simulation) machines() machines {
	f, _ := w.observe()
	return f
}

// observe returns the machines, and for ksctl's own agent the list of workers that is known.
func (w *simulation) observe() (machines, workerList) {
	nodes := slices.Clone(w.others)
	for i, joined := range w.joined {
		if joined {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("demo-vm-wp-%d-abcde", i),
				UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{}},
				Spec: corev1.NodeSpec{ProviderID: fmt.Sprintf("k3s://%d", i)}}
			for _, p := range testPools {
				if !w.ksctlAgent && p.NodeSize == w.sizes[i] || w.ksctlAgent && p.Name == w.labeled[i] {
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
	if w.ksctlAgent {
		l := newWorkerList(session.Report{KsctlAgent: true, Operation: w.reported}, w.cluster(), &w.obj.Status, w.now)
		return newMachines(testWorkerNames, w.obj.Spec.Pools, nodes, l), l
	}
	return newMachines(testWorkerNames, w.obj.Spec.Pools, nodes, completeList(w.sizes...)), workerList{}
}

// cluster returns the KsctlCluster with the imported state.
func (w *simulation) cluster() *clusterv1.KsctlCluster {
	c := &clusterv1.KsctlCluster{}
	if w.ksctlAgent && w.importedWorkers >= 0 {
		c.Status.Facts = &clusterv1.ClusterFacts{Pools: []clusterv1.NodePool{{Role: workerRole,
			Count: w.importedWorkers}}}
	}
	return c
}

// step runs one reconcile with the given requests of Cluster Autoscaler.
func (w *simulation) step(ask ...func(*nodegroup.Cluster) ([]nodegroup.Change, error)) *scalingPlan {
	w.t.Helper()
	f, l := w.observe()
	if w.ksctlAgent {
		w.overdue, _ = w.state.trackJoins(&f, w.obj.Status.Operation, joinTimeout(&w.obj.Spec), w.now)
	}
	f.markLost(w.overdue, w.obj.Status.Operation, effectiveMode(&w.obj), w.ksctlAgent)
	seen := &observation{machines: f, cluster: w.cluster(), reported: w.reported, ksctlAgent: w.ksctlAgent,
		knownWorkers: l.knownWorkers, importedWorkers: l.importedWorkers, overdue: w.overdue}
	p := newPlan(&w.obj, seen, w.now, func(p *scalingPlan) {
		for _, decide := range ask {
			c, err := toCluster(&w.obj, seen, p, w.now)
			if err != nil {
				w.t.Fatal(err)
			}
			changes, err := decide(c)
			if err != nil {
				continue
			}
			for _, x := range changes {
				p.applyChange(x, w.now)
			}
		}
	})
	p.writeStatus(&w.obj, seen)
	for i := range f.list {
		if m := &f.list[i]; w.ksctlAgent && m.node != nil && m.pool != "" {
			w.labeled[int(m.index)] = m.pool
		}
	}
	w.checkInvariants(p)
	return p
}

// checkInvariants checks what must hold at any time, whatever is requested.
func (w *simulation) checkInvariants(p *scalingPlan) {
	w.t.Helper()
	op := p.op
	if session.IsInProgress(op) && op.Kind == clusterv1.OperationScaleUp &&
		(op.DesiredWorkers <= op.From || op.State == clusterv1.OperationPending && !w.ksctlAgent &&
			int(op.From) != len(w.sizes)) {
		w.t.Fatalf("scale-up %+v of %d workers", op, len(w.sizes))
	}
	if session.IsInProgress(op) && op.State == clusterv1.OperationPending {
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
			w.t.Fatalf("pool %s has target %d", line.Name, line.Target)
		}
	}
}

func increase(pool string, n int32, now time.Time) func(*nodegroup.Cluster) ([]nodegroup.Change, error) {
	return func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		return nodegroup.PlanIncrease(c, "ns/as/"+pool, n, now)
	}
}

// removeLast taints the last worker that is not tainted, and requests its deletion, as Cluster
// Autoscaler does.
func (w *simulation) removeLast() func(*nodegroup.Cluster) ([]nodegroup.Change, error) {
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
				changes, err := nodegroup.PlanDelete(c, "ns/as/"+p.Name,
					[]nodegroup.Node{{Name: fmt.Sprintf("demo-vm-wp-%d-abcde", last)}})
				if err != nil {
					delete(w.tainted, last) // it is in use again
				}
				return changes, err
			}
		}
		return nil, nil
	}
}

// runOperation lets the agent create or delete n machines of an operation, and report a phase.
func (w *simulation) runOperation(op *clusterv1.ScaleOperation, n int32, phase session.Phase) {
	for range n {
		if op.Kind == clusterv1.OperationScaleUp {
			w.sizes, w.joined = append(w.sizes, op.NodeSize), append(w.joined, false)
		} else {
			w.sizes, w.joined = w.sizes[:len(w.sizes)-1], w.joined[:len(w.joined)-1]
			delete(w.tainted, len(w.sizes))
			delete(w.labeled, len(w.sizes))
		}
	}
	w.reported = session.OperationStatus{ID: op.ID, Phase: phase, Code: clusterv1.CodeFailed,
		Message: "message of the agent"}
	if phase == session.Failed {
		w.reported.Code = clusterv1.CodeOutOfResources
	}
}

func (w *simulation) pool(name string) clusterv1.WorkerPoolStatus {
	w.t.Helper()
	if p := poolStatus(&w.obj.Status, name); p != nil {
		return *p
	}
	w.t.Fatalf("no pool %s in the status", name)
	return clusterv1.WorkerPoolStatus{}
}

// failedNodes returns the failed machines of a node group that Cluster Autoscaler observes.
func failedNodes(t *testing.T, c *nodegroup.Cluster, group string) (out []nodegroup.Node) {
	t.Helper()
	published := nodegroup.NewClusters()
	published.Publish(c)
	caller := func(context.Context) (types.NamespacedName, error) { return c.Key, nil }
	response, err := nodegroup.NewServer(published, nil, clock.RealClock{}, caller).
		NodeGroupNodes(t.Context(), &externalgrpc.NodeGroupNodesRequest{Id: group})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range response.GetInstances() {
		if x.GetStatus().GetErrorInfo() != nil {
			out = append(out, nodegroup.Node{Name: x.GetId(), ProviderID: x.GetId()})
		}
	}
	return out
}

func TestScaleUpIsRecordedBeforeItBegins(t *testing.T) {
	w := newSimulation(t, "s-1", "s-1")
	p := w.step(increase("small", 2, w.now))
	if op := p.op; op == nil || op.State != clusterv1.OperationPending || op.From != 2 || op.DesiredWorkers != 4 ||
		op.NodeSize != "s-1" {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("small"); got.Target != 4 || got.Creating != 2 || got.LastScale == nil ||
		got.LastScale.From != 2 || got.LastScale.To != 4 {
		t.Fatalf("pool %+v", got)
	}
	w.runOperation(p.op, 1, session.Running) // one of two machines
	w.step()
	if got := w.pool("small"); got.Target != 4 || got.Creating != 2 {
		t.Fatalf("with one of two machines: %+v", got)
	}
	w.runOperation(p.op, 1, session.Succeeded)
	p = w.step()
	if p.op.State != clusterv1.OperationSucceeded || p.ended == nil {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("small"); got.Target != 4 || got.Creating != 2 || got.Change != 0 || got.Registered != 2 {
		t.Fatalf("at the end: %+v", got)
	}
}

func TestFailedScaleUpSetsMissingAndBackoff(t *testing.T) {
	w := newSimulation(t, "s-1")
	p := w.step(increase("small", 3, w.now))
	w.runOperation(p.op, 1, session.Failed) // one of three machines was created
	p = w.step()
	got := w.pool("small")
	if p.op.State != clusterv1.OperationFailed || got.Target != 4 || got.Change != 0 || got.Backoff == nil ||
		got.Backoff.Missing != 2 || got.Backoff.Code != clusterv1.CodeOutOfResources {
		t.Fatalf("operation %+v, pool %+v", p.op, got)
	}
	if p = w.step(increase("small", 1, w.now)); session.IsInProgress(p.op) {
		t.Fatal("an operation began during the backoff")
	}
	// Cluster Autoscaler observes the two failed machines.
	w.step(func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		return nodegroup.PlanDelete(c, "ns/as/small", failedNodes(t, c, "ns/as/small"))
	})
	if got = w.pool("small"); got.Target != 2 || got.Backoff.Missing != 0 {
		t.Fatalf("after: %+v", got)
	}
	w.now = w.now.Add(2 * initialBackoff)
	if p = w.step(increase("small", 1, w.now)); !session.IsInProgress(p.op) {
		t.Fatal("no operation began after the backoff")
	}
}

func TestFalseSuccessIsAFailure(t *testing.T) {
	w := newSimulation(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	w.runOperation(p.op, 0, session.Succeeded)
	p = w.step()
	if got := w.pool("small"); p.op.State != clusterv1.OperationFailed || got.Backoff == nil ||
		got.Backoff.Code != clusterv1.CodeNotDone || got.Backoff.Missing != 1 {
		t.Fatalf("operation %+v, pool %+v", p.op, got)
	}
}

func TestOnlyTheTailIsDeleted(t *testing.T) {
	w := newSimulation(t, "s-1", "l-1", "s-1")
	w.tainted[1], w.tainted[2] = true, true
	del := func(i int, pool string) func(*nodegroup.Cluster) ([]nodegroup.Change, error) {
		return func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
			return nodegroup.PlanDelete(c, "ns/as/"+pool,
				[]nodegroup.Node{{Name: fmt.Sprintf("demo-vm-wp-%d-abcde", i)}})
		}
	}
	p := w.step(del(2, "small"), del(1, "large"))
	if p.op == nil || p.op.Kind != clusterv1.OperationScaleDown || p.op.Pool != "small" || p.op.DesiredWorkers != 2 {
		t.Fatalf("operation %+v", p.op)
	}
	w.runOperation(p.op, 1, session.Succeeded)
	w.step()
	w.now = w.now.Add(time.Second)
	p = w.step()
	// The other requested deletion is of another pool.
	if p.op.Kind != clusterv1.OperationScaleDown || p.op.Pool != "large" || p.op.DesiredWorkers != 1 {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("small"); got.Target != 1 {
		t.Fatalf("small: %+v", got)
	}
}

func TestFailedDeletionKeepsTheMachine(t *testing.T) {
	w := newSimulation(t, "s-1", "s-1")
	p := w.step(w.removeLast())
	w.runOperation(p.op, 0, session.Failed)
	w.step()
	if got := w.pool("small"); got.Target != 2 || got.Change != 0 || got.Backoff == nil {
		t.Fatalf("pool %+v", got)
	}
}

func TestMachinesOfAnotherSizeAreCreatedOnce(t *testing.T) {
	w := newSimulation(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	op := *p.op
	op.NodeSize = "x-9" // the agent creates another size
	w.runOperation(&op, 1, session.Succeeded)
	if p = w.step(); p.op.State != clusterv1.OperationFailed ||
		w.pool("small").Backoff.Code != clusterv1.CodeOtherSize {
		t.Fatalf("operation %+v", p.op)
	}
	for range 10 {
		w.now = w.now.Add(time.Hour)
		if p = w.step(increase("small", 1, w.now)); session.IsInProgress(p.op) {
			t.Fatalf("another machine is created: %+v", p.op)
		}
	}
	w = newSimulation(t, "S-1") // the spelling of the cloud
	if w.step(); w.pool("small").Target != 1 || w.obj.Status.UnmanagedWorkers != 0 {
		t.Fatalf("%+v", w.pool("small"))
	}
}

func TestPoolRenamedDuringScaleUpGetsNoExtraMachines(t *testing.T) {
	w := newSimulation(t)
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "s-1", MinSize: 3, MaxSize: 9}}
	p := w.step()
	w.runOperation(p.op, 1, session.Running)
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "other", NodeSize: "s-1", MinSize: 3, MaxSize: 9}}
	w.step()
	if got := w.pool("other"); got.Target != 3 {
		t.Fatalf("during the operation: %+v", got)
	}
	w.runOperation(p.op, 2, session.Succeeded)
	if p = w.step(); session.IsInProgress(p.op) || w.pool("other").Target != 3 {
		t.Fatalf("pool %+v, operation %+v", w.pool("other"), p.op)
	}
}

func TestExpiredDeletionDeletesNoOtherMachine(t *testing.T) {
	w := newSimulation(t, "s-1", "s-1", "s-1")
	w.obj.Status.Pools = []clusterv1.WorkerPoolStatus{{Name: "small", Change: -1,
		LastScale: &clusterv1.PoolScale{Time: metav1.NewTime(w.now), From: 4, To: 3}}}
	p := w.step()
	if p.op != nil { // the last machine is not tainted
		t.Fatalf("operation %+v", p.op)
	}
	w.now = w.now.Add(2 * deletionTimeout)
	if p = w.step(); p.op != nil || w.pool("small").Target != 3 {
		t.Fatalf("operation %+v, pool %+v", p.op, w.pool("small"))
	}
}

func TestDeletedNodeRestartsTheJoinTimeout(t *testing.T) {
	w := newSimulation(t, "s-1", "s-1")
	var e entry
	op := operation("one", 1, 2)
	op.State, op.EndedAt = clusterv1.OperationSucceeded, &metav1.Time{Time: w.now.Add(-time.Minute)}
	op.StartedAt = metav1.NewTime(w.now.Add(-time.Hour))
	w.obj.Status.Operation = op
	f := w.machines()
	e.trackJoins(&f, op, 10*time.Minute, w.now)
	w.joined[1] = false
	f = w.machines()
	if late, _ := e.trackJoins(&f, op, 10*time.Minute, w.now); len(late) != 0 {
		t.Fatalf("overdue: %v", late)
	}
	if late, _ := e.trackJoins(&f, op, 10*time.Minute, w.now.Add(time.Hour)); !late[1] {
		t.Fatal("never overdue")
	}
	var other entry // of another process, which has not observed that the machine joined
	if late, _ := other.trackJoins(&f, op, 10*time.Minute, w.now); !late[1] {
		t.Fatal("created an hour ago, but not overdue")
	}
}

func TestRaisedMinSizeScalesUpAtOnce(t *testing.T) {
	w := newSimulation(t, "s-1")
	w.step()
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "s-1", MinSize: 3, MaxSize: 4}}
	p := w.step()
	if !session.IsInProgress(p.op) || p.op.DesiredWorkers != 3 {
		t.Fatalf("operation %+v", p.op)
	}
	no := false
	w = newSimulation(t)
	w.obj.Spec.ScaleUp = &clusterv1.ScaleUp{EnforceMinSize: &no}
	if p := w.step(); p.op != nil {
		t.Fatalf("operation %+v", p.op)
	}
}

func TestModeOffCancelsPendingChanges(t *testing.T) {
	w := newSimulation(t, "s-1", "s-1", "s-1")
	p := w.step(w.removeLast())
	w.obj.Spec.Mode = clusterv1.ScalingOff
	w.step(increase("large", 1, w.now))
	if got := w.pool("small"); got.Target != 2 || got.Change != 0 || got.Deleting != 1 {
		t.Fatalf("the operation in progress: %+v", got)
	}
	w.runOperation(p.op, 1, session.Succeeded)
	w.step()
	if p = w.step(w.removeLast(), increase("large", 1, w.now)); session.IsInProgress(p.op) {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("large"); got.Target != 0 {
		t.Fatalf("large: %+v", got)
	}
}

func TestMachinesCreatedByOthersAreCounted(t *testing.T) {
	w := newSimulation(t, "s-1")
	w.step()
	w.sizes, w.joined = append(w.sizes, "s-1", "x-9"), append(w.joined, true, true)
	p := w.step()
	if got := w.pool("small"); got.Target != 2 || p.op != nil || w.obj.Status.UnmanagedWorkers != 1 {
		t.Fatalf("pool %+v, operation %+v, status %+v", got, p.op, w.obj.Status)
	}
	// The last machine is in no pool: no machine before it may be deleted.
	if p = w.step(func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		return nodegroup.PlanDelete(c, "ns/as/small", []nodegroup.Node{{Name: "demo-vm-wp-1-abcde"}})
	}); p.op != nil {
		t.Fatalf("operation %+v", p.op)
	}
}

func TestSlowMachinesCountAsMissing(t *testing.T) {
	w := newSimulation(t, "s-1")
	p := w.step(increase("small", 2, w.now))
	w.runOperation(p.op, 1, session.Running)
	w.joined[1] = true
	w.now = w.now.Add(time.Hour)
	for range 2 { // the failure is recorded once
		p = w.step()
		if got := w.pool("small"); got.Target != 3 || got.Backoff == nil || got.Backoff.Code != clusterv1.CodeSlow ||
			got.Backoff.Missing != 1 {
			t.Fatalf("pool %+v", got)
		}
	}
	w.runOperation(p.op, 1, session.Succeeded)
	p = w.step()
	// The machine that has joined is kept, the other one is deleted.
	if p.op.Kind != clusterv1.OperationScaleDown || p.op.From != 3 || p.op.DesiredWorkers != 2 {
		t.Fatalf("operation %+v", p.op)
	}
}

func TestOverdueMachineInTheMiddleIsLost(t *testing.T) {
	w := newSimulation(t, "s-1", "s-1", "s-1")
	w.joined[1] = false
	f := w.machines()
	f.markLost(map[int32]bool{1: true}, nil, clusterv1.ScalingAuto, false)
	if !f.list[1].lost || f.list[0].lost || f.list[2].lost {
		t.Fatalf("%+v", f.list)
	}
	f = w.machines()
	w.joined[2] = false
	if f = w.machines(); f.size() != 3 {
		t.Fatal(f.size())
	}
	last := operation("one", 1, 3)
	// the last machines, created by the last operation
	f.markLost(map[int32]bool{1: true, 2: true}, last, clusterv1.ScalingAuto, false)
	if f.list[1].lost || f.list[2].lost {
		t.Fatalf("%+v", f.list)
	}
}

func TestMachineThatNeverJoinsIsDeleted(t *testing.T) {
	w := newSimulation(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	w.runOperation(p.op, 1, session.Succeeded)
	w.step()
	w.now = w.now.Add(time.Hour)
	w.overdue = map[int32]bool{1: true}
	p = w.step()
	if p.op.Kind != clusterv1.OperationScaleDown || p.op.DesiredWorkers != 1 {
		t.Fatalf("operation %+v", p.op)
	}
	if got := w.pool("small"); got.Target != 2 || got.Backoff == nil || got.Backoff.Code != clusterv1.CodeJoinTimeout ||
		got.Backoff.Missing != 1 {
		t.Fatalf("pool %+v", got)
	}
}

// TestInvariantsWithRandomRequests simulates random requests of Cluster Autoscaler, results of the
// agent and changes of the spec.
func TestInvariantsWithRandomRequests(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newSimulation(t, "s-1")
			w.obj.Spec.Limits = &clusterv1.ScalingLimits{MaxNodesTotal: 5}
			w.overdue = map[int32]bool{}
			for range 200 {
				w.randomStep(r)
			}
			w.converge()
		})
	}
}

func (w *simulation) randomStep(r *rand.Rand) {
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
				return nodegroup.PlanDecrease(c, "ns/as/"+pool, -int32(r.IntN(3)))
			})
		}
	}
	w.obj.Spec.Mode = []clusterv1.ScalingMode{"", "", "", clusterv1.ScalingUpOnly, clusterv1.ScalingOff}[r.IntN(5)]
	p := w.step(asks...)
	if len(w.sizes) > 5 {
		w.t.Fatalf("%d nodes, but maxNodesTotal is 5", len(w.sizes))
	}
	if op := p.op; session.IsInProgress(op) {
		left := op.DesiredWorkers - int32(len(w.sizes))
		if left < 0 {
			left = -left
		}
		switch r.IntN(5) {
		case 0:
			w.runOperation(op, min(left, 1), session.Running)
		case 1:
			w.runOperation(op, int32(r.IntN(int(left)+1)), session.Failed)
		case 2:
			w.runOperation(op, int32(r.IntN(int(left)+1)), session.Succeeded) // may be false
		case 3:
			w.runOperation(op, left, session.Succeeded)
		}
	}
	for i := range w.joined {
		w.joined[i] = w.joined[i] || !w.overdue[int32(i)] && r.IntN(3) == 0
	}
	w.randomizeOverdue(r)
	w.step() // an operation ends
	w.step() // another one begins
	w.step(w.checkNotStuck)
	w.now = w.now.Add(time.Duration(r.IntN(120)) * time.Second)
}

// converge reconciles without further faults and checks the result.
func (w *simulation) converge() {
	w.obj.Spec.Mode, w.overdue = clusterv1.ScalingAuto, nil
	for range 20 {
		w.now = w.now.Add(2 * time.Hour)
		if p := w.step(); session.IsInProgress(p.op) {
			n := p.op.DesiredWorkers - int32(len(w.sizes))
			w.runOperation(p.op, max(n, -n), session.Succeeded)
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
		if got.Target != counts[pool.NodeSize] || got.Change != 0 || got.Target < pool.MinSize ||
			got.Target > pool.MaxSize {
			w.t.Fatalf("pool %s: %+v with %d machines", pool.Name, got, counts[pool.NodeSize])
		}
	}
}

// Cluster Autoscaler observes the failure of a machine after the machine has joined, while the
// operation is still in progress.
func TestMachineThatJoinsLateIsNotCreatedTwice(t *testing.T) {
	w := newSimulation(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	w.runOperation(p.op, 1, session.Running)
	w.now = w.now.Add(time.Hour)
	w.step()
	var failed []nodegroup.Node
	w.step(func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		failed = failedNodes(t, c, "ns/as/small")
		return nil, nil
	})
	if len(failed) != 1 {
		t.Errorf("%d failed machines, want 1", len(failed))
	}
	w.joined[1] = true
	p = w.step(func(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
		return nodegroup.PlanDelete(c, "ns/as/small", failed)
	})
	if got := w.pool("small"); got.Target != 2 {
		t.Errorf("pool %+v", got)
	}
	w.runOperation(p.op, 0, session.Succeeded)
	w.now = w.now.Add(time.Hour)
	p = w.step()
	if got := w.pool("small"); got.Target != 2 || got.Change != 0 || session.IsInProgress(p.op) {
		t.Fatalf("pool %+v, operation %+v", got, p.op)
	}
}

func operation(id string, from, to int32) *clusterv1.ScaleOperation {
	op := &clusterv1.ScaleOperation{ID: id, Kind: clusterv1.OperationScaleUp, From: from, DesiredWorkers: to,
		NodeSize: "s-1", State: clusterv1.OperationPending}
	if to < from {
		op.Kind = clusterv1.OperationScaleDown
	}
	return op
}
