package autoscaler

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// randomizeOverdue makes some of the machines that have not joined overdue, at random.
func (w *simulation) randomizeOverdue(r *rand.Rand) {
	for i, joined := range w.joined {
		switch op := w.obj.Status.Operation; {
		case joined:
			delete(w.overdue, int32(i))
		case session.IsInProgress(op) && createdBy(i, op): // being created, so not overdue
		case r.IntN(2) == 0:
			w.overdue[int32(i)] = true
		}
	}
	for i := range w.overdue {
		if int(i) >= len(w.joined) {
			delete(w.overdue, i)
		}
	}
}

// checkNotStuck checks that Cluster Autoscaler can cancel machines that are in a target and do not
// exist, while no operation creates them. If it cannot, it ends its loop for all pools.
func (w *simulation) checkNotStuck(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
	w.t.Helper()
	for i := range c.Groups {
		g := &c.Groups[i]
		joined, waits := int32(0), c.Busy || g.Failure != nil
		for _, x := range c.Workers {
			switch {
			case x.Pool != g.Name:
			case x.Node != "":
				joined++
			case !w.overdue[x.Index]:
				waits = true
			}
		}
		if waits || g.Target <= joined {
			continue
		}
		if _, err := nodegroup.PlanDecrease(c, g.ID, joined-g.Target); err != nil {
			w.t.Fatalf("mode %q: pool %s has target %d and %d nodes, overdue %v, workers %+v: %v", w.obj.Spec.Mode,
				g.Name, g.Target, joined, w.overdue, c.Workers, err)
		}
	}
	return nil, nil
}

func TestMachineThatNeverJoinsIsDeletedInScaleUpOnly(t *testing.T) {
	w := newSimulation(t, "s-1")
	w.obj.Spec.Mode = clusterv1.ScalingUpOnly
	p := w.step(increase("small", 1, w.now))
	w.runOperation(p.op, 1, session.Succeeded)
	w.step()
	w.now = w.now.Add(time.Hour)
	w.overdue = map[int32]bool{1: true}
	p = w.step()
	got := w.pool("small")
	if p.op.Kind != clusterv1.OperationScaleDown || p.op.DesiredWorkers != 1 || got.Target != 2 || got.Backoff == nil ||
		got.Backoff.Missing != 1 {
		t.Fatalf("operation %+v, pool %+v", p.op, got)
	}
	if last := got.LastScale; last.From != 2 || last.To != 1 || last.Reason == "" {
		t.Errorf("last scale %+v", last)
	}
}

// A machine in a target that is neither deleted nor canceled would stop Cluster Autoscaler.
func TestOverdueMachineThatMayNotBeDeletedIsLost(t *testing.T) {
	off := newSimulation(t, "s-1", "s-1")
	off.obj.Spec.Mode = clusterv1.ScalingOff
	ksctlAgent := newSimulation(t, "s-1", "s-1")
	ksctlAgent.ksctlAgent, ksctlAgent.importedWorkers, ksctlAgent.labeled = true, -1, map[int]string{0: "small"}
	ksctlAgent.obj.Status.Workers = 2
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-nobody",
		CreationTimestamp: metav1.NewTime(ksctlAgent.now.Add(-time.Minute))}}
	ksctlAgent.others = []*corev1.Node{other}
	for what, w := range map[string]*simulation{"mode Off": off, "another node has joined": ksctlAgent} {
		t.Run(what, func(t *testing.T) {
			w.t, w.joined[1] = t, false
			w.obj.Status.Operation = operation("one", 1, 2)
			w.obj.Status.Operation.State, w.obj.Status.Operation.NodeSize = clusterv1.OperationSucceeded, "s-1"
			w.obj.Status.Operation.StartedAt = metav1.NewTime(w.now.Add(-time.Hour))
			w.obj.Status.Operation.EndedAt = &metav1.Time{Time: w.now.Add(-50 * time.Minute)}
			w.overdue = map[int32]bool{1: true}
			w.step()
			if w.ksctlAgent { // the join timeout starts at the first reconcile
				w.now = w.now.Add(time.Hour)
				w.step()
			}
			if got := w.pool("small"); got.Target != 1 || got.Change != 0 {
				t.Errorf("pool %+v", got)
			}
		})
	}
}

func TestMinSizeScaleUpStartsItsOwnJoinTimeout(t *testing.T) {
	w := newSimulation(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	if p.op.RequestedAt == nil || !p.op.RequestedAt.Time.Equal(w.now) {
		t.Fatalf("operation %+v", p.op)
	}
	w.runOperation(p.op, 1, session.Succeeded)
	w.joined[1] = true
	w.step()
	w.now = w.now.Add(30 * time.Minute)
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "s-1", MinSize: 3, MaxSize: 4}}
	p = w.step()
	if !session.IsInProgress(p.op) || p.op.RequestedAt != nil {
		t.Fatalf("operation %+v", p.op)
	}
	w.now = w.now.Add(time.Second)
	if p = w.step(); p.op.GivenUp != 0 || w.pool("small").Backoff != nil {
		t.Fatalf("operation %+v, pool %+v", p.op, w.pool("small"))
	}
	if last := w.pool("small").LastScale; last.From != 2 || last.To != 3 || last.Reason != "minSize is 3" {
		t.Errorf("last scale %+v", last)
	}
}

func TestOtherSizeBackoffLastsUntilMachinesAreDeleted(t *testing.T) {
	w := newSimulation(t, "s-1", "x-9") // one machine is in no pool, and is kept
	p := w.step(increase("small", 1, w.now))
	op := *p.op
	op.NodeSize = "y-9" // the agent creates another size
	w.runOperation(&op, 1, session.Succeeded)
	w.step()
	for range 5 {
		w.now = w.now.Add(time.Hour)
		before := w.obj.Status.DeepCopy()
		p = w.step(increase("small", 1, w.now))
		if started := p.startedBackoffs(before, w.now); len(started) > 0 {
			t.Fatalf("the backoff started again: %+v", started)
		}
		if got := w.pool("small"); !inBackoff(got.Backoff, clusterv1.OperationScaleUp, w.now) || got.Change != 0 ||
			len(p.degradedMessages(&observation{}, w.now)) == 0 {
			t.Fatalf("pool %+v", got)
		}
	}
	w.sizes, w.joined = w.sizes[:2], w.joined[:2] // deleted by a user
	if w.step(); w.pool("small").Backoff != nil || w.pool("small").Target != 1 {
		t.Fatalf("pool %+v", w.pool("small"))
	}
	if p = w.step(increase("small", 1, w.now)); !session.IsInProgress(p.op) {
		t.Fatal("no operation began after the backoff")
	}
}

// All machines of one operation that never join are deleted at once: after another operation it
// would be unknown that this operation created the rest.
func TestMachinesThatNeverJoinAreDeletedTogether(t *testing.T) {
	w := newSimulation(t, "s-1")
	p := w.step(increase("small", 3, w.now))
	w.runOperation(p.op, 3, session.Succeeded)
	w.step()
	w.now = w.now.Add(time.Hour)
	w.overdue = map[int32]bool{1: true, 2: true, 3: true}
	p = w.step()
	if got := w.pool("small"); p.op.Kind != clusterv1.OperationScaleDown || p.op.DesiredWorkers != 1 ||
		got.Backoff.Missing != 3 || got.Backoff.Failures != 1 {
		t.Fatalf("operation %+v, pool %+v", p.op, got)
	}
	// The deletion fails and is retried.
	w.runOperation(p.op, 1, session.Failed)
	w.overdue = map[int32]bool{1: true, 2: true}
	w.step()
	w.now = w.now.Add(time.Hour)
	if p = w.step(); p.op.Kind != clusterv1.OperationScaleDown || !session.IsInProgress(p.op) ||
		p.op.DesiredWorkers != 1 {
		t.Fatalf("operation %+v, pool %+v", p.op, w.pool("small"))
	}
}

// A created machine may still not join, so the backoff increases with each join timeout.
func TestJoinTimeoutsIncreaseTheBackoff(t *testing.T) {
	w := newSimulation(t, "s-1")
	for failures := range int32(5) {
		p := w.step(increase("small", 1, w.now))
		if !session.IsInProgress(p.op) {
			t.Fatalf("no operation began after %d failures: %+v", failures, w.pool("small"))
		}
		w.runOperation(p.op, 1, session.Succeeded)
		w.step()
		w.now = w.now.Add(20 * time.Minute)
		w.overdue = map[int32]bool{1: true}
		p = w.step()
		if got := w.pool("small").Backoff; got == nil || got.Failures != failures+1 {
			t.Fatalf("backoff %+v, want %d failures", got, failures+1)
		}
		w.overdue = nil
		w.runOperation(p.op, 1, session.Succeeded)
		w.step()
		w.now = w.pool("small").Backoff.Until.Time
	}
}

func TestMachineThatHadJoinedIsKeptInScaleUpOnly(t *testing.T) {
	for mode, kept := range map[clusterv1.ScalingMode]bool{clusterv1.ScalingAuto: false,
		clusterv1.ScalingUpOnly: true} {
		f := newSimulation(t, "s-1", "s-1").machines()
		f.list[1].node, f.list[1].joined = nil, true
		if f.markLost(map[int32]bool{1: true}, operation("one", 1, 2), mode, false); f.list[1].lost != kept {
			t.Errorf("%s: kept %t", mode, f.list[1].lost)
		}
	}
}

func TestOtherSizeBackoffEndsWhenPoolTakesThatSize(t *testing.T) {
	w := newSimulation(t, "s-1", "s-1")
	p := w.step(increase("small", 1, w.now))
	op := *p.op
	op.NodeSize = "y-9" // the agent creates another size
	w.runOperation(&op, 1, session.Succeeded)
	w.step()
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "y-9", MinSize: 1, MaxSize: 4}}
	w.now = w.now.Add(time.Hour)
	if p = w.step(increase("small", 1, w.now)); w.pool("small").Backoff != nil || !session.IsInProgress(p.op) {
		t.Fatalf("operation %+v, pool %+v", p.op, w.pool("small"))
	}
}
