package autoscaler

import (
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// never has machines that have not joined never join, some of the time: they are late.
func (w *world) never(r *rand.Rand) {
	for i, joined := range w.joined {
		switch op := w.obj.Status.Operation; {
		case joined:
			delete(w.late, int32(i))
		case atWork(op) && made(i, op): // it has time
		case r.IntN(2) == 0:
			w.late[int32(i)] = true
		}
	}
	for i := range w.late {
		if int(i) >= len(w.joined) {
			delete(w.late, i)
		}
	}
}

// notStuck looks at whether Cluster Autoscaler may give up what is counted on and does not come, where
// nobody is at work on it: where it may not, it ends its loop, for all pools.
func (w *world) notStuck(c *nodegroup.Cluster) ([]nodegroup.Change, error) {
	w.t.Helper()
	for i := range c.Groups {
		g := &c.Groups[i]
		joined, waits := int32(0), c.Busy || g.Failure != nil
		for _, x := range c.Workers {
			switch {
			case x.Pool != g.Name:
			case x.Node != "":
				joined++
			case !w.late[x.Index]:
				waits = true
			}
		}
		if waits || g.Target <= joined {
			continue
		}
		if _, err := nodegroup.Decrease(c, g.ID, joined-g.Target); err != nil {
			w.t.Fatalf("mode %q: pool %s has the target %d and %d nodes, late %v, workers %+v: %v", w.obj.Spec.Mode, g.Name, g.Target, joined, w.late, c.Workers, err)
		}
	}
	return nil, nil
}

func TestMachineThatNeverJoinsIsDeletedInScaleUpOnly(t *testing.T) {
	w := newWorld(t, "s-1")
	w.obj.Spec.Mode = clusterv1.ScalingUpOnly
	p := w.step(increase("small", 1, w.now))
	w.carry(p.op, 1, agentSucceeded)
	w.step()
	w.now = w.now.Add(time.Hour)
	w.late = map[int32]bool{1: true}
	p = w.step()
	got := w.pool("small")
	if p.op.Kind != clusterv1.OperationScaleDown || p.op.DesiredWorkers != 1 || got.Target != 2 || got.Backoff == nil || got.Backoff.Missing != 1 {
		t.Fatalf("operation %+v, pool %+v", p.op, got)
	}
	if last := got.LastScale; last.From != 2 || last.To != 1 || last.Reason == "" {
		t.Errorf("last scale %+v", last)
	}
}

// One that is neither deleted nor given up would stop the whole autoscaler.
func TestMachineThatMayNotBeDeletedIsCountedOnByNobody(t *testing.T) {
	off := newWorld(t, "s-1", "s-1")
	off.obj.Spec.Mode = clusterv1.ScalingOff
	plain := newWorld(t, "s-1", "s-1")
	plain.plain, plain.facts, plain.labelled = true, -1, map[int]string{0: "small"}
	plain.obj.Status.Workers = 2
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-nobody", CreationTimestamp: metav1.NewTime(plain.now.Add(-time.Minute))}}
	plain.others = []*corev1.Node{other}
	for what, w := range map[string]*world{"mode Off": off, "another node has joined": plain} {
		t.Run(what, func(t *testing.T) {
			w.t, w.joined[1] = t, false
			w.obj.Status.Operation = operation("one", 1, 2)
			w.obj.Status.Operation.State, w.obj.Status.Operation.NodeSize = clusterv1.OperationSucceeded, "s-1"
			w.obj.Status.Operation.StartedAt = metav1.NewTime(w.now.Add(-time.Hour))
			w.obj.Status.Operation.EndedAt = &metav1.Time{Time: w.now.Add(-50 * time.Minute)}
			w.late = map[int32]bool{1: true}
			w.step()
			if w.plain { // it is known since then
				w.now = w.now.Add(time.Hour)
				w.step()
			}
			if got := w.pool("small"); got.Target != 1 || got.Change != 0 {
				t.Errorf("pool %+v", got)
			}
		})
	}
}

func TestWhatMinSizeAsksForIsWaitedForFromThen(t *testing.T) {
	w := newWorld(t, "s-1")
	p := w.step(increase("small", 1, w.now))
	if p.op.RequestedAt == nil || !p.op.RequestedAt.Time.Equal(w.now) {
		t.Fatalf("operation %+v", p.op)
	}
	w.carry(p.op, 1, agentSucceeded)
	w.joined[1] = true
	w.step()
	w.now = w.now.Add(30 * time.Minute)
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "s-1", MinSize: 3, MaxSize: 4}}
	p = w.step()
	if !atWork(p.op) || p.op.RequestedAt != nil {
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

func TestMachinesOfAnotherSizeAreSeenUntilTheyAreGone(t *testing.T) {
	w := newWorld(t, "s-1", "x-9") // one is of no pool, and stays
	p := w.step(increase("small", 1, w.now))
	op := *p.op
	op.NodeSize = "y-9" // what it makes instead
	w.carry(&op, 1, agentSucceeded)
	w.step()
	for range 5 {
		w.now = w.now.Add(time.Hour)
		before := w.obj.Status.DeepCopy()
		p = w.step(increase("small", 1, w.now))
		if told := p.newBackoffs(before, w.now); len(told) > 0 {
			t.Fatalf("it is said again: %+v", told)
		}
		if got := w.pool("small"); !backsOff(got.Backoff, clusterv1.OperationScaleUp, w.now) || got.Change != 0 || len(p.troubles(&sight{}, w.now)) == 0 {
			t.Fatalf("pool %+v", got)
		}
	}
	w.sizes, w.joined = w.sizes[:2], w.joined[:2] // somebody has deleted it
	if w.step(); w.pool("small").Backoff != nil || w.pool("small").Target != 1 {
		t.Fatalf("pool %+v", w.pool("small"))
	}
	if p = w.step(increase("small", 1, w.now)); !atWork(p.op) {
		t.Fatal("not begun")
	}
}

// All that one operation made and that never join go at once: of those that are left nobody would know
// any more that it made them.
func TestMachinesThatNeverJoinAreDeletedTogether(t *testing.T) {
	w := newWorld(t, "s-1")
	p := w.step(increase("small", 3, w.now))
	w.carry(p.op, 3, agentSucceeded)
	w.step()
	w.now = w.now.Add(time.Hour)
	w.late = map[int32]bool{1: true, 2: true, 3: true}
	p = w.step()
	if got := w.pool("small"); p.op.Kind != clusterv1.OperationScaleDown || p.op.DesiredWorkers != 1 || got.Backoff.Missing != 3 || got.Backoff.Failures != 1 {
		t.Fatalf("operation %+v, pool %+v", p.op, got)
	}
	// The agent fails: they are tried again, and not left for ever.
	w.carry(p.op, 1, agentFailed)
	w.late = map[int32]bool{1: true, 2: true}
	w.step()
	w.now = w.now.Add(time.Hour)
	if p = w.step(); p.op.Kind != clusterv1.OperationScaleDown || !atWork(p.op) || p.op.DesiredWorkers != 1 {
		t.Fatalf("operation %+v, pool %+v", p.op, w.pool("small"))
	}
}

// That a machine could be made says nothing of whether it joins: the pool waits for longer each time.
func TestFailuresOfMachinesThatNeverJoinAddUp(t *testing.T) {
	w := newWorld(t, "s-1")
	for failures := range int32(5) {
		p := w.step(increase("small", 1, w.now))
		if !atWork(p.op) {
			t.Fatalf("not begun after %d: %+v", failures, w.pool("small"))
		}
		w.carry(p.op, 1, agentSucceeded)
		w.step()
		w.now = w.now.Add(20 * time.Minute)
		w.late = map[int32]bool{1: true}
		p = w.step()
		if got := w.pool("small").Backoff; got == nil || got.Failures != failures+1 {
			t.Fatalf("back-off %+v, want %d failures", got, failures+1)
		}
		w.late = nil
		w.carry(p.op, 1, agentSucceeded)
		w.step()
		w.now = w.pool("small").Backoff.Until.Time
	}
}

func TestAMachineThatHadJoinedIsKeptInScaleUpOnly(t *testing.T) {
	for mode, kept := range map[clusterv1.ScalingMode]bool{clusterv1.ScalingAuto: false, clusterv1.ScalingUpOnly: true} {
		f := newWorld(t, "s-1", "s-1").fleet()
		f.machines[1].node, f.machines[1].joined = nil, true
		if f.lose(map[int32]bool{1: true}, operation("one", 1, 2), mode, false); f.machines[1].lost != kept {
			t.Errorf("%s: kept %t", mode, f.machines[1].lost)
		}
	}
}

func TestMachinesOfThePoolThatItIsMadeToBeHoldNothing(t *testing.T) {
	w := newWorld(t, "s-1", "s-1")
	p := w.step(increase("small", 1, w.now))
	op := *p.op
	op.NodeSize = "y-9" // what it makes instead
	w.carry(&op, 1, agentSucceeded)
	w.step()
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "y-9", MinSize: 1, MaxSize: 4}}
	w.now = w.now.Add(time.Hour)
	if p = w.step(increase("small", 1, w.now)); w.pool("small").Backoff != nil || !atWork(p.op) {
		t.Fatalf("operation %+v, pool %+v", p.op, w.pool("small"))
	}
}
