package autoscaler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

// TestKsctlAgentWithRandomRequests is TestInvariantsWithRandomRequests with ksctl's own agent,
// which cannot list workers, and forgets machines if a scale-up requests fewer than there are.
func TestKsctlAgentWithRandomRequests(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			w := newSimulation(t, "s-1")
			w.ksctlAgent, w.importedWorkers = true, -1
			w.labeled[0] = "small"
			exported := int32(1)
			for range 200 {
				w.randomKsctlAgentStep(r)
				switch r.IntN(20) { // exports are imported later, in order
				case 0:
					exported = int32(len(w.sizes))
				case 1:
					w.importedWorkers = exported
				}
			}
			w.convergeKsctlAgent()
		})
	}
}

func (w *simulation) randomKsctlAgentStep(r *rand.Rand) {
	w.obj.Spec.Mode = []clusterv1.ScalingMode{"", "", "", clusterv1.ScalingUpOnly, clusterv1.ScalingOff}[r.IntN(5)]
	if n := r.IntN(3); n > 0 {
		p := w.step(increase([]string{"small", "large"}[r.IntN(2)], int32(n), w.now))
		w.runKsctlAgent(p.op, r)
	} else {
		p := w.step(w.removeLast())
		w.runKsctlAgent(p.op, r)
	}
	for i := range w.joined {
		w.joined[i] = w.joined[i] || r.IntN(3) == 0
	}
	w.now = w.now.Add(time.Duration(1+r.IntN(120)) * time.Second)
}

// runKsctlAgent lets ksctl's own agent continue, complete, or fail halfway through an operation.
func (w *simulation) runKsctlAgent(op *clusterv1.ScaleOperation, r *rand.Rand) {
	w.t.Helper()
	if !session.IsInProgress(op) || w.reported.ID == op.ID || r.IntN(3) == 0 {
		return
	}
	n := int(op.DesiredWorkers) - len(w.sizes)
	switch {
	case op.Kind == clusterv1.OperationScaleUp && n < 0:
		w.t.Fatalf("the agent forgets %d of %d machines: %+v", -n, len(w.sizes), op)
	case op.Kind != clusterv1.OperationScaleUp && n > 0:
		w.t.Fatalf("a deletion goes beyond the end of the array of %d: %+v", len(w.sizes), op)
	}
	if n = max(n, -n); r.IntN(4) == 0 {
		w.runOperation(op, int32(r.IntN(n+1)), session.Failed)
		w.reported.Code = []string{clusterv1.CodeFailed, clusterv1.CodeFailed, clusterv1.CodeNoAnswer}[r.IntN(3)]
		return
	}
	w.runOperation(op, int32(n), session.Succeeded)
}

// convergeKsctlAgent reconciles without further requests and checks the result.
func (w *simulation) convergeKsctlAgent() {
	w.obj.Spec.Mode = clusterv1.ScalingAuto
	if w.importedWorkers >= 0 {
		w.importedWorkers = int32(len(w.sizes))
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		w.now = w.now.Add(2 * time.Hour)
		for i := range w.joined {
			w.joined[i] = true
		}
		if p := w.step(); session.IsInProgress(p.op) {
			for w.reported.ID != p.op.ID {
				w.runKsctlAgent(p.op, random)
			}
		}
	}
	if have := w.obj.Status.Workers; have != int32(len(w.sizes)) {
		w.t.Fatalf("%d workers in the status, want %d", have, len(w.sizes))
	}
	for _, pool := range w.obj.Spec.Pools {
		if got := w.pool(pool.Name); got.Target < pool.MinSize || got.Target > pool.MaxSize || got.Change != 0 {
			w.t.Fatalf("pool %s: %+v", pool.Name, got)
		}
	}
}

// newKsctlAgentSimulation returns a simulation with ksctl's own agent and joined workers.
func newKsctlAgentSimulation(t *testing.T, sizes ...string) *simulation {
	w := newSimulation(t, sizes...)
	w.ksctlAgent, w.importedWorkers = true, int32(len(sizes))
	for i, size := range sizes {
		w.labeled[i] = map[string]string{"s-1": "small", "l-1": "large"}[size]
	}
	w.step()
	return w
}

// failedScaleUp returns a simulation in which a scale-up by 2 failed after it created some
// machines.
func failedScaleUp(t *testing.T, created int32) (*simulation, *scalingPlan) {
	w := newKsctlAgentSimulation(t, "s-1")
	p := w.step(increase("small", 2, w.now))
	w.runOperation(p.op, created, session.Failed)
	return w, w.step()
}

func TestFailureBlocksScaleUpUntilRecount(t *testing.T) {
	w, p := failedScaleUp(t, 1)
	if p.uncertainty == nil || p.uncertainty.minWorkers != 1 || p.uncertainty.maxWorkers != 3 ||
		!strings.Contains(p.blocked, "there are between 1 and 3 workers") {
		t.Fatalf("uncertainty %+v, blocked %q", p.uncertainty, p.blocked)
	}
	if p = w.step(increase("large", 1, w.now)); p.op.State != clusterv1.OperationFailed || len(p.lastScales) > 0 {
		t.Fatalf("operation %+v, changes %v", p.op, p.lastScales)
	}
	w.now = w.now.Add(2 * time.Minute)
	if p = w.step(); p.op.Kind != clusterv1.OperationRecount || p.op.From != 3 || p.op.DesiredWorkers != 1 {
		t.Fatalf("%+v", p.op)
	}
	if got := w.pool("small"); got.Target != 1 || got.Backoff == nil ||
		got.Backoff.Operation != clusterv1.OperationScaleUp || got.Backoff.Failures != 1 {
		t.Fatalf("the recount changed the pool: %+v", got)
	}
	w.runOperation(p.op, 1, session.Succeeded)
	if p = w.step(increase("large", 1, w.now)); p.blocked != "" || p.op.Kind != clusterv1.OperationScaleUp ||
		p.op.DesiredWorkers != 2 {
		t.Fatalf("blocked %q, %+v", p.blocked, p.op)
	}
}

func TestRecountNeverDeletesJoinedMachines(t *testing.T) {
	for what, x := range map[string]struct {
		change func(w *simulation)
		want   string
	}{
		"node with another name": {func(w *simulation) {
			w.others = []*corev1.Node{node("ip-10-0-0-7.internal", 0, nil)}
			w.others[0].CreationTimestamp.Time = w.now
		}, "a node has joined since"},
		"worker without a node": {func(w *simulation) {
			w.joined[0] = false
		}, "worker 0, which is not part of the operation"},
		"import with more workers": {func(w *simulation) {
			w.importedWorkers = 7
		}, "the imported state has more workers"},
		"mode Off": {func(w *simulation) { w.obj.Spec.Mode = clusterv1.ScalingOff }, "mode is Off"},
	} {
		t.Run(what, func(t *testing.T) {
			w, _ := failedScaleUp(t, 2)
			w.now = w.now.Add(30 * time.Second)
			x.change(w)
			w.now = w.now.Add(time.Hour)
			if p := w.step(); p.op.Kind != clusterv1.OperationScaleUp || !strings.Contains(p.blocked, x.want) {
				t.Errorf("%+v, blocked %q", p.op, p.blocked)
			}
		})
	}
	w, _ := failedScaleUp(t, 2)
	w.joined[1], w.joined[2] = true, true
	if p := w.step(); p.uncertainty != nil || p.op.Unsettled {
		t.Fatalf("still uncertain although all have joined: %+v", p.op)
	}
	w.joined[2] = false // much later, such as by kubectl delete node
	w.now = w.now.Add(time.Hour)
	if p := w.step(); p.op.Kind != clusterv1.OperationScaleUp || !p.awaitingJoin {
		t.Errorf("%+v, blocked %q", p.op, p.blocked)
	}
}

func TestRecountWaitsForUnansweredOperation(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1")
	p := w.step(increase("small", 2, w.now))
	w.runOperation(p.op, 0, session.Failed)
	w.reported.Code = clusterv1.CodeNoAnswer
	w.step()
	w.now = w.now.Add(9 * time.Minute)
	if p = w.step(); p.op.Kind != clusterv1.OperationScaleUp {
		t.Fatalf("after 9 of 10 minutes: %+v", p.op)
	}
	w.now = w.now.Add(time.Minute)
	if p = w.step(); p.op.Kind != clusterv1.OperationRecount {
		t.Fatalf("after 10 minutes: %+v", p.op)
	}
}

func TestNodesSettleAFailedDeletion(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1", "s-1")
	p := w.step(w.removeLast())
	w.runOperation(p.op, 0, session.Failed)
	if p = w.step(); p.uncertainty == nil || p.uncertainty.suspect != 1 {
		t.Fatalf("%+v", p.uncertainty)
	}
	w.now = w.now.Add(2 * time.Minute)
	if p = w.step(); p.uncertainty != nil || p.op.Unsettled || p.blocked != "" {
		t.Fatalf("still uncertain although the node is ready: %+v, blocked %q", p.uncertainty, p.blocked)
	}
	w = newKsctlAgentSimulation(t, "s-1", "s-1")
	p = w.step(w.removeLast())
	w.runOperation(p.op, 1, session.Failed)
	w.now = w.now.Add(2 * time.Minute)
	w.step()
	w.now = w.now.Add(2 * time.Minute)
	if p = w.step(); p.op.Kind != clusterv1.OperationRecount || p.op.From != 2 || p.op.DesiredWorkers != 1 {
		t.Fatalf("no recount although the node is deleted: %+v", p.op)
	}
}

func TestImportedWorkersAreNotDeleted(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1", "s-1")
	w.step(increase("small", 1, w.now)) // from here on the workers are known without the import
	w.runOperation(w.obj.Status.Operation, 1, session.Succeeded)
	w.joined[2] = true
	w.step()
	w.importedWorkers = 1
	if p := w.step(); p.blocked != "" || w.obj.Status.Workers != 3 {
		t.Fatalf("an import with fewer workers is used: blocked %q, %d workers", p.blocked, w.obj.Status.Workers)
	}
	w.importedWorkers = 6
	w.now = w.now.Add(time.Hour)
	if p := w.step(w.removeLast()); session.IsInProgress(p.op) ||
		!strings.Contains(p.blocked, "the imported state has 6 workers") || w.obj.Status.Workers != 3 {
		t.Fatalf("%+v, blocked %q, %d workers", p.op, p.blocked, w.obj.Status.Workers)
	}
	w.importedWorkers = 3
	if p := w.step(); p.blocked != "" {
		t.Fatalf("blocked %q", p.blocked)
	}
}

// The nodes have no instance type label, or the one that k3s sets.
func TestSizesFollowFromTheLastOperation(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1")
	p := w.step(increase("small", 1, w.now), increase("large", 1, w.now))
	w.runOperation(p.op, 1, session.Succeeded)
	if p = w.step(); session.IsInProgress(p.op) || !p.awaitingJoin {
		t.Fatalf("another operation began before the machine joined: %+v", p.op)
	}
	w.joined[1], w.instanceType = true, "k3s"
	w.step()
	if got := w.labeled[1]; got != "small" {
		t.Fatalf("labeled %q", got)
	}
	if p = w.step(); p.op.Pool != "large" || p.op.From != 2 {
		t.Fatalf("%+v", p.op)
	}
}
