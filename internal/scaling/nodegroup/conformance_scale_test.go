package nodegroup

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

func TestScaleUp(t *testing.T) {
	r, a := startServerTest(t, newCluster(1, 0, workers("small")...))
	a.ok(a.increase(groupID("small"), 2))
	if got := a.target(groupID("small")); got != 3 {
		t.Errorf("target %d", got)
	}
	if got := a.instances(groupID("small")); len(got) != 1 {
		t.Errorf("lists machines that have not joined: %v", got)
	}
	r.recorder.settle(prod)
	if got := a.instances(groupID("small")); len(got) != 3 {
		t.Errorf("%v", got)
	}
	if got := r.recorder.popRecorded(); len(got) != 1 || got[0].Target != 3 || got[0].Reason == "" {
		t.Errorf("%+v", got)
	}
}

func TestScaleUpFromZero(t *testing.T) {
	c := newCluster(0, 0)
	pool := poolOfSize("t3.medium")
	node, _ := Template(&pool, nil)
	raw, err := MarshalNode(node)
	if err != nil {
		t.Fatal(err)
	}
	c.Groups[0].Template = raw
	r, a := startServerTest(t, c)
	out, err := a.NodeGroupTemplateNodeInfo(t.Context(),
		&externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: groupID("small")})
	a.ok(err)
	var like corev1.Node
	a.ok(like.Unmarshal(out.GetNodeBytes()))
	if like.Status.Allocatable.Cpu().String() != "1830m" || like.Labels[clusterv1.PoolLabel] != "small" {
		t.Errorf("%+v", like)
	}
	a.ok(a.increase(groupID("small"), 1))
	r.recorder.settle(prod)
	if got := a.groupOf(nodesAt(r.clusters.Get(prod), 0)[0]); got != groupID("small") {
		t.Errorf("the new node is in group %q", got)
	}
}

// Recorded behavior: Cluster Autoscaler cancels a machine that is not listed after the provision
// time, and waits before it requests another one.
func TestMissingMachineIsCanceled(t *testing.T) {
	r, a := startServerTest(t, newCluster(1, 0, workers("small")...))
	a.ok(a.increase(groupID("small"), 1))
	if got := a.unregistered(groupID("small"), r.clusters.Get(prod).Workers[0].ProviderID); len(got) != 0 {
		t.Errorf("Cluster Autoscaler would delete %v", got)
	}
	r.clock.Step(20 * time.Minute)
	a.ok(a.decrease(groupID("small"), -1))
	if got := a.target(groupID("small")); got != 1 {
		t.Errorf("target %d", got)
	}
	expectStatus(t, a.decrease(groupID("small"), -1), codes.FailedPrecondition, "exist")
}

// Recorded behavior: Cluster Autoscaler deletes an instance with an error once, as a fake node, and
// does not scale the group up for 5 minutes. The next increase clears the rest of the failure.
func TestQuotaErrorIsShownClearedAndBackedOff(t *testing.T) {
	r, a := startServerTest(t, withFailure(time.Now().Add(5*time.Minute)))
	small := groupID("small")
	c := r.clusters.Get(prod)
	fakes := a.unregistered(small, c.Workers[0].ProviderID, c.Workers[1].ProviderID, c.Workers[2].ProviderID)
	if len(fakes) != 2 {
		t.Fatalf("%v", fakes)
	}
	for _, fake := range fakes {
		if got := a.groupOf(fake); got != small {
			t.Errorf("%v is in group %q", fake, got)
		}
	}
	a.ok(a.remove(small, fakes...))
	if got := a.target(small); got != 3 || len(a.instances(small)) != 3 {
		t.Errorf("target %d, %v", got, a.instances(small))
	}
	// Cluster Autoscaler's cache of instances is up to two minutes old.
	if got := a.groupOf(fakes[0]); got != small {
		t.Errorf("a cleared placeholder is in group %q", got)
	}
	a.ok(a.remove(small, fakes...))
	if got := a.target(small); got != 3 {
		t.Errorf("cleared twice: target %d", got)
	}
	expectStatus(t, a.increase(small, 1), codes.ResourceExhausted, "QuotaExceeded")
	a.ok(a.increase(groupID("big"), 1))
	r.clock.Step(6 * time.Minute)
	a.ok(a.increase(small, 1))
	if got := a.target(small); got != 4 {
		t.Errorf("target %d", got)
	}
}

func TestIncreaseAfterBackoffClearsFailure(t *testing.T) {
	r, a := startServerTest(t, withFailure(time.Now().Add(-time.Second)))
	a.ok(a.increase(groupID("small"), 1))
	if got := r.recorder.popRecorded(); len(got) != 1 || got[0].Target != 4 || got[0].ClearFailed != 2 {
		t.Errorf("%+v", got)
	}
}

// Recorded behavior: if all but the last worker are marked against scale-down, Cluster Autoscaler
// deletes empty nodes strictly in the order 4, 3, 2, 1 and stops at minSize.
func TestEmptyNodesAreDeletedFromTheEnd(t *testing.T) {
	c := newCluster(5, 0, workers("small", "small", "small", "small", "small")...)
	c.Groups[0].Min = 1
	r, a := startServerTest(t, c)
	small := groupID("small")
	for at := 4; at > 0; at-- {
		for _, before := range nodesAt(c, 0, 1, 2, 3)[:at] { // Cluster Autoscaler's node clean-up ignores the mark
			expectStatus(t, a.remove(small, before), codes.FailedPrecondition, "cannot be deleted before worker")
		}
		a.ok(a.remove(small, nodesAt(c, at)...))
		a.ok(a.remove(small, nodesAt(c, at)...)) // a retry after a timeout
		if got := a.target(small); int(got) != at {
			t.Fatalf("target %d, want %d", got, at)
		}
		if got := a.instances(small); !strings.HasSuffix(got[at], "instanceDeleting") {
			t.Errorf("%v", got)
		}
		r.recorder.settle(prod)
		expectStatus(t, a.remove(small, nodesAt(c, at)...), codes.NotFound, c.Workers[at].Node)
	}
	expectStatus(t, a.remove(small, nodesAt(c, 0)...), codes.FailedPrecondition, "minSize is 1")
	if got := len(r.clusters.Get(prod).Workers); got != 1 {
		t.Errorf("%d workers", got)
	}
}

// An idle node before a busy one in the array is not deleted, whichever pool the busy one is in.
func TestBusyNodeBlocksDeletionOfNodesBeforeIt(t *testing.T) {
	c := newCluster(2, 1, workers("small", "small", "big")...)
	r, a := startServerTest(t, c)
	expectStatus(t, a.remove(groupID("small"), nodesAt(c, 1)...), codes.FailedPrecondition,
		"worker 2 (node prod-vm-wp-2-abcde)")
	a.ok(a.remove(groupID("big"), nodesAt(c, 2)...))
	a.ok(a.remove(groupID("small"), nodesAt(c, 1)...)) // allowed although the other one still exists
	r.recorder.settle(prod)
	if got := len(r.clusters.Get(prod).Workers); got != 1 {
		t.Errorf("%d workers", got)
	}
}

func TestInvalidNumbersAreRejected(t *testing.T) {
	r, a := startServerTest(t, newCluster(1, 0, workers("small")...))
	for _, delta := range []int32{0, -1, math.MinInt32} {
		expectStatus(t, a.increase(groupID("small"), delta), codes.InvalidArgument, "small")
	}
	for _, delta := range []int32{6, 5000, math.MaxInt32, math.MaxInt32 - 1} {
		expectStatus(t, a.increase(groupID("small"), delta), codes.OutOfRange, "maxSize is 6")
	}
	for _, delta := range []int32{0, 1, math.MaxInt32} {
		expectStatus(t, a.decrease(groupID("small"), delta), codes.InvalidArgument, "small")
	}
	expectStatus(t, a.decrease(groupID("small"), math.MinInt32), codes.FailedPrecondition, "exist")
	var many []Node
	for range 10_000 {
		many = append(many, Node{Name: "nobody"})
	}
	expectStatus(t, a.remove(groupID("small"), many...), codes.NotFound, "nobody")
	if got := r.recorder.popRecorded(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// A client does not see the error of the ChangeRecorder.
func TestChangeIsRejectedWhenItCannotBeRecorded(t *testing.T) {
	r, a := startServerTest(t, newCluster(1, 0))
	r.recorder.fail = errors.New("etcdserver: no space at 10.0.0.7")
	err := a.increase(groupID("small"), 1)
	expectStatus(t, err, codes.Unavailable, "not done")
	if strings.Contains(err.Error(), "10.0.0.7") || a.target(groupID("small")) != 1 {
		t.Error(err)
	}
}
