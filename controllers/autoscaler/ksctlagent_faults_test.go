package autoscaler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

// orphanedNode returns the Node of a deleted machine that has not been ready since a time.
func orphanedNode(name string, since time.Time) *corev1.Node {
	n := node(name, time.Hour, map[string]string{clusterv1.PoolLabel: "small"})
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
		LastTransitionTime: metav1.NewTime(since)}}
	return n
}

func TestMachineBeingDeletedDoesNotBlock(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1", "s-1")
	w.step(w.removeLast())
	w.joined[1] = false // the node is deleted before the agent responds
	if p := w.step(); !session.IsInProgress(p.op) || p.blocked != "" {
		t.Fatalf("%+v, blocked %q", p.op, p.blocked)
	}
}

func TestDeletionTaintStaysWhileAgentMayBeDeleting(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1", "s-1")
	marked := w.now
	taintStale := func(p *scalingPlan) bool { again, _ := w.staleTaints(p, marked, 1); return again[1] }
	p := w.step(w.removeLast())
	w.runOperation(p.op, 0, session.Failed)
	w.reported.Code = clusterv1.CodeNoAnswer
	w.now = w.now.Add(5 * time.Second)
	delete(w.tainted, 1)
	if p = w.step(); !p.op.Unsettled || taintStale(p) {
		t.Fatalf("the machine may still be deleted: unsettled %v, taint stale %v", p.op.Unsettled, taintStale(p))
	}
	w.now = w.now.Add(time.Hour)
	if p = w.step(); p.op.Unsettled || !taintStale(p) {
		t.Fatalf("the machine is in use again: unsettled %v, taint stale %v", p.op.Unsettled, taintStale(p))
	}
}

func TestListingAgentEndsUncertainty(t *testing.T) {
	w, p := failedScaleUp(t, 0)
	if p.uncertainty == nil {
		t.Fatal("no uncertainty")
	}
	w.ksctlAgent = false
	w.now = w.now.Add(time.Hour)
	if p = w.step(); p.uncertainty != nil || p.op.Unsettled || p.blocked != "" ||
		p.op.Kind == clusterv1.OperationRecount {
		t.Fatalf("uncertainty %v, blocked %q, %+v", p.uncertainty, p.blocked, p.op)
	}
}

func TestRenamedPoolKeepsItsMachines(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1", "s-1", "s-1")
	w.instanceType = "k3s" // not a size of the cloud
	w.obj.Spec.Pools = []clusterv1.WorkerPool{{Name: "tiny", NodeSize: "s-1", MinSize: 2, MaxSize: 4}}
	if p := w.step(); p.op != nil || w.pool("tiny").Target != 3 || w.obj.Status.UnmanagedWorkers != 0 {
		t.Fatalf("%+v, pool %+v, %d in no pool", p.op, w.pool("tiny"), w.obj.Status.UnmanagedWorkers)
	}
}

func TestMachineThatMayHaveJoinedUnderAnotherNameIsKept(t *testing.T) {
	for _, other := range []bool{false, true} {
		w := newKsctlAgentSimulation(t, "s-1")
		p := w.step(increase("small", 1, w.now))
		w.runOperation(p.op, 1, session.Succeeded)
		w.step()
		w.step() // the join timeout starts
		if other {
			n := node("ip-10-0-0-7", 0, nil)
			n.CreationTimestamp = metav1.NewTime(w.now.Add(time.Minute))
			w.others = []*corev1.Node{n}
		}
		w.now = w.now.Add(11 * time.Minute)
		if p = w.step(); (p.op.Kind == clusterv1.OperationScaleDown) == other {
			t.Errorf("another node has joined %v: %+v", other, p.op)
		}
	}
}

func TestNodeWithTooHighIndexIsNotAWorker(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1")
	w.others = []*corev1.Node{orphanedNode("demo-vm-wp-999999", w.now)}
	if f := w.machines(); f.size() != 1 || f.otherNodes != 1 {
		t.Fatalf("%d machines and %d other nodes", f.size(), f.otherNodes)
	}
}

func TestImportDoesNotUndoTheNextDeletion(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1", "s-1", "s-1")
	p := w.step(w.removeLast())
	w.runOperation(p.op, 1, session.Succeeded)
	w.others = []*corev1.Node{orphanedNode("demo-vm-wp-2-abcde", w.now)} // the deletion is observed later
	if p = w.step(); p.op.State != clusterv1.OperationSucceeded || w.obj.Status.Workers != 2 {
		t.Fatalf("%+v, %d workers", p.op, w.obj.Status.Workers)
	}
	w.others = nil
	w.now = w.now.Add(time.Hour)
	if p = w.step(increase("small", 1, w.now)); p.blocked != "" || p.op.Kind != clusterv1.OperationScaleUp ||
		p.op.From != 2 || p.op.DesiredWorkers != 3 {
		t.Fatalf("blocked %q, %+v", p.blocked, p.op)
	}
}

func TestNoOperationBeginsWhileOrphanedNodesExist(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1", "s-1", "s-1")
	p := w.step(w.removeLast())
	w.runOperation(p.op, 1, session.Succeeded)
	w.others = []*corev1.Node{orphanedNode("demo-vm-wp-2-abcde", w.now)}
	w.step()
	w.now = w.now.Add(30 * time.Second)
	if p = w.step(w.removeLast(), increase("large", 1, w.now)); session.IsInProgress(p.op) {
		t.Fatalf("%+v", p.op)
	}
	w.others = nil
	if p = w.step(); p.op.Kind != clusterv1.OperationScaleDown || p.op.From != 2 || p.op.DesiredWorkers != 1 {
		t.Fatalf("after the nodes are deleted: %+v", p.op)
	}
}

func TestFailureRecordedByEarlierVersionIsUncertain(t *testing.T) {
	w, _ := failedScaleUp(t, 2)
	w.obj.Status.Operation.Unsettled, w.obj.Status.Operation.Code = false, ""
	w.now = w.now.Add(2 * time.Minute)
	if p := w.step(increase("large", 1, w.now)); p.op.Kind != clusterv1.OperationRecount || p.op.From != 3 ||
		p.op.DesiredWorkers != 1 {
		t.Fatalf("%+v", p.op)
	}
}
