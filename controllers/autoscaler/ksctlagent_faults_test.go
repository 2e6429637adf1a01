package autoscaler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// leftOver is the Node of a deleted machine that has not been ready since a time.
func leftOver(name string, since time.Time) *corev1.Node {
	n := node(name, time.Hour, map[string]string{clusterv1.PoolLabel: "small"})
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)}}
	return n
}

func TestAMachineThatIsBeingDeletedIsNotMissed(t *testing.T) {
	w := newPlain(t, "s-1", "s-1")
	w.step(w.removeLast())
	w.joined[1] = false // its node goes before the agent answers
	if p := w.step(); !atWork(p.op) || p.held != "" {
		t.Fatalf("%+v, held %q", p.op, p.held)
	}
}

func TestAMarkStaysWhileTheAgentMayBeDeleting(t *testing.T) {
	w := newPlain(t, "s-1", "s-1")
	marked := w.now
	used := func(p *plan) bool { again, _ := w.released(p, marked, 1); return again[1] }
	p := w.step(w.removeLast())
	w.carry(p.op, 0, agentFailed)
	w.word.code = CodeNoAnswer
	w.now = w.now.Add(5 * time.Second)
	delete(w.tainted, 1)
	if p = w.step(); !p.op.Unsettled || used(p) {
		t.Fatalf("it may still be deleted: unsettled %v, released %v", p.op.Unsettled, used(p))
	}
	w.now = w.now.Add(time.Hour)
	if p = w.step(); p.op.Unsettled || !used(p) {
		t.Fatalf("it is used again: unsettled %v, released %v", p.op.Unsettled, used(p))
	}
}

func TestAnAgentThatListsMachinesEndsADoubt(t *testing.T) {
	w, p := failing(t, 0)
	if p.doubt == nil {
		t.Fatal("no doubt")
	}
	w.plain = false
	w.now = w.now.Add(time.Hour)
	if p = w.step(); p.doubt != nil || p.op.Unsettled || p.held != "" || p.op.Kind == clusterv1.OperationRecount {
		t.Fatalf("doubt %v, held %q, %+v", p.doubt, p.held, p.op)
	}
}

func TestAPoolThatIsRenamedHasTheMachinesThatThereAre(t *testing.T) {
	w := newPlain(t, "s-1", "s-1", "s-1")
	w.instanceType = "k3s" // which tells no size
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "tiny", NodeSize: "s-1", MinSize: 2, MaxSize: 4}}
	if p := w.step(); p.op != nil || w.pool("tiny").Target != 3 || w.obj.Status.UnmanagedWorkers != 0 {
		t.Fatalf("%+v, pool %+v, %d of no pool", p.op, w.pool("tiny"), w.obj.Status.UnmanagedWorkers)
	}
}

func TestAMachineThatMayHaveJoinedByAnotherNameIsNotDeleted(t *testing.T) {
	for _, other := range []bool{false, true} {
		w := newPlain(t, "s-1")
		p := w.step(increase("small", 1, w.now))
		w.carry(p.op, 1, agentSucceeded)
		w.step()
		w.step() // from here on it is waited for
		if other {
			n := node("ip-10-0-0-7", 0, nil)
			n.CreationTimestamp = metav1.NewTime(w.now.Add(time.Minute))
			w.others = []*corev1.Node{n}
		}
		w.now = w.now.Add(11 * time.Minute)
		if p = w.step(); (p.op.Kind == clusterv1.OperationScaleDown) == other {
			t.Errorf("a node by another name %v: %+v", other, p.op)
		}
	}
}

func TestANodeWithAHighNumberIsNoWorker(t *testing.T) {
	w := newPlain(t, "s-1")
	w.others = []*corev1.Node{leftOver("demo-vm-wp-999999", w.now)}
	if f := w.fleet(); f.size() != 1 || f.others != 1 {
		t.Fatalf("%d machines and %d other nodes", f.size(), f.others)
	}
}

func TestTheFirstDeletionAfterAnImportIsNotUndoneByIt(t *testing.T) {
	w := newPlain(t, "s-1", "s-1", "s-1")
	p := w.step(w.removeLast())
	w.carry(p.op, 1, agentSucceeded)
	w.others = []*corev1.Node{leftOver("demo-vm-wp-2-abcde", w.now)} // known for a moment longer
	if p = w.step(); p.op.State != clusterv1.OperationSucceeded || w.obj.Status.Workers != 2 {
		t.Fatalf("%+v, %d workers", p.op, w.obj.Status.Workers)
	}
	w.others = nil
	w.now = w.now.Add(time.Hour)
	if p = w.step(increase("small", 1, w.now)); p.held != "" || p.op.Kind != clusterv1.OperationScaleUp || p.op.From != 2 || p.op.DesiredWorkers != 3 {
		t.Fatalf("held %q, %+v", p.held, p.op)
	}
}

func TestNothingIsBegunWhileNodesOfDeletedMachinesLinger(t *testing.T) {
	w := newPlain(t, "s-1", "s-1", "s-1")
	p := w.step(w.removeLast())
	w.carry(p.op, 1, agentSucceeded)
	w.others = []*corev1.Node{leftOver("demo-vm-wp-2-abcde", w.now)}
	w.step()
	w.now = w.now.Add(30 * time.Second)
	if p = w.step(w.removeLast(), increase("large", 1, w.now)); atWork(p.op) {
		t.Fatalf("%+v", p.op)
	}
	w.others = nil
	if p = w.step(); p.op.Kind != clusterv1.OperationScaleDown || p.op.From != 2 || p.op.DesiredWorkers != 1 {
		t.Fatalf("when they are gone: %+v", p.op)
	}
}

func TestAFailureOfAnEarlierVersionIsADoubt(t *testing.T) {
	w, _ := failing(t, 2)
	w.obj.Status.Operation.Unsettled, w.obj.Status.Operation.Code = false, ""
	w.now = w.now.Add(2 * time.Minute)
	if p := w.step(increase("large", 1, w.now)); p.op.Kind != clusterv1.OperationRecount || p.op.From != 3 || p.op.DesiredWorkers != 1 {
		t.Fatalf("%+v", p.op)
	}
}
