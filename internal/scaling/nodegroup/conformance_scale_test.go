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
	r, a := converse(t, cluster(1, 0, workers("small")...))
	a.ok(a.increase(groupID("small"), 2))
	if got := a.target(groupID("small")); got != 3 {
		t.Errorf("target %d", got)
	}
	if got := a.instances(groupID("small")); len(got) != 1 {
		t.Errorf("machines that have not joined are listed: %v", got)
	}
	r.ledger.settle(prod)
	if got := a.instances(groupID("small")); len(got) != 3 {
		t.Errorf("%v", got)
	}
	if got := r.ledger.taken(); len(got) != 1 || got[0].Target != 3 || got[0].Reason == "" {
		t.Errorf("%+v", got)
	}
}

func TestScaleUpFromZero(t *testing.T) {
	c := cluster(0, 0)
	node, _ := Template(TemplateInput{Pool: pool("t3.medium")})
	raw, err := Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	c.Groups[0].Template = raw
	r, a := converse(t, c)
	out, err := a.NodeGroupTemplateNodeInfo(t.Context(), &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: groupID("small")})
	a.ok(err)
	var like corev1.Node
	a.ok(like.Unmarshal(out.GetNodeBytes()))
	if like.Status.Allocatable.Cpu().String() != "1830m" || like.Labels[clusterv1.PoolLabel] != "small" {
		t.Errorf("%+v", like)
	}
	a.ok(a.increase(groupID("small"), 1))
	r.ledger.settle(prod)
	if got := a.groupOf(nodes(r.clusters.Get(prod), 0)[0]); got != groupID("small") {
		t.Errorf("the new node is of %q", got)
	}
}

// Measured: a machine that is not listed is given up after the provision time, and Cluster
// Autoscaler waits before it asks again.
func TestAMachineThatNeverArrivesIsGivenUp(t *testing.T) {
	r, a := converse(t, cluster(1, 0, workers("small")...))
	a.ok(a.increase(groupID("small"), 1))
	if got := a.unregistered(groupID("small"), r.clusters.Get(prod).Workers[0].ProviderID); len(got) != 0 {
		t.Errorf("%v would be deleted", got)
	}
	r.clock.Step(20 * time.Minute)
	a.ok(a.decrease(groupID("small"), -1))
	if got := a.target(groupID("small")); got != 1 {
		t.Errorf("target %d", got)
	}
	refused(t, a.decrease(groupID("small"), -1), codes.FailedPrecondition, "exist")
}

// Measured: an instance with an error is deleted once, as a fake node, and the group is left
// alone for 5 minutes. What is left of the failure then is forgiven by the next wish.
func TestAQuotaErrorIsShownForgivenAndWaitedFor(t *testing.T) {
	r, a := converse(t, failing(time.Now().Add(5*time.Minute)))
	small := groupID("small")
	c := r.clusters.Get(prod)
	fakes := a.unregistered(small, c.Workers[0].ProviderID, c.Workers[1].ProviderID, c.Workers[2].ProviderID)
	if len(fakes) != 2 {
		t.Fatalf("%v", fakes)
	}
	for _, fake := range fakes {
		if got := a.groupOf(fake); got != small {
			t.Errorf("%v is of %q", fake, got)
		}
	}
	a.ok(a.remove(small, fakes...))
	if got := a.target(small); got != 3 || len(a.instances(small)) != 3 {
		t.Errorf("target %d, %v", got, a.instances(small))
	}
	// What it keeps of the instances is up to two minutes old.
	if got := a.groupOf(fakes[0]); got != small {
		t.Errorf("a forgiven one is of %q", got)
	}
	a.ok(a.remove(small, fakes...))
	if got := a.target(small); got != 3 {
		t.Errorf("forgiven twice: target %d", got)
	}
	refused(t, a.increase(small, 1), codes.ResourceExhausted, "QuotaExceeded")
	a.ok(a.increase(groupID("big"), 1))
	r.clock.Step(6 * time.Minute)
	a.ok(a.increase(small, 1))
	if got := a.target(small); got != 4 {
		t.Errorf("target %d", got)
	}
}

func TestAFailureThatWasNotForgivenIsByTheNextWish(t *testing.T) {
	r, a := converse(t, failing(time.Now().Add(-time.Second)))
	a.ok(a.increase(groupID("small"), 1))
	if got := r.ledger.taken(); len(got) != 1 || got[0].Target != 4 || got[0].Forgive != 2 {
		t.Errorf("%+v", got)
	}
}

// Rule 1, measured: with all but the last worker marked, empty nodes go strictly 4, 3, 2, 1 and
// it stops at the least.
func TestEmptyNodesGoFromTheEnd(t *testing.T) {
	c := cluster(5, 0, workers("small", "small", "small", "small", "small")...)
	c.Groups[0].Min = 1
	r, a := converse(t, c)
	small := groupID("small")
	for at := 4; at > 0; at-- {
		for _, before := range nodes(c, 0, 1, 2, 3)[:at] { // the clean-up of nodes ignores the mark
			refused(t, a.remove(small, before), codes.FailedPrecondition, "can't go before worker")
		}
		a.ok(a.remove(small, nodes(c, at)...))
		a.ok(a.remove(small, nodes(c, at)...)) // it did not wait for the answer
		if got := a.target(small); int(got) != at {
			t.Fatalf("target %d, want %d", got, at)
		}
		if got := a.instances(small); !strings.HasSuffix(got[at], "instanceDeleting") {
			t.Errorf("%v", got)
		}
		r.ledger.settle(prod)
		refused(t, a.remove(small, nodes(c, at)...), codes.NotFound, c.Workers[at].Node)
	}
	refused(t, a.remove(small, nodes(c, 0)...), codes.FailedPrecondition, "minSize is 1")
	if got := len(r.clusters.Get(prod).Workers); got != 1 {
		t.Errorf("%d workers", got)
	}
}

// Rule 2: an idle node before a busy one waits, whatever pool the busy one is of.
func TestABusyNodeKeepsThoseBeforeIt(t *testing.T) {
	c := cluster(2, 1, workers("small", "small", "big")...)
	r, a := converse(t, c)
	refused(t, a.remove(groupID("small"), nodes(c, 1)...), codes.FailedPrecondition, "worker 2 (node prod-vm-wp-2-abcde)")
	a.ok(a.remove(groupID("big"), nodes(c, 2)...))
	a.ok(a.remove(groupID("small"), nodes(c, 1)...)) // also before the other one is gone
	r.ledger.settle(prod)
	if got := len(r.clusters.Get(prod).Workers); got != 1 {
		t.Errorf("%d workers", got)
	}
}

func TestSillyNumbersAreRefused(t *testing.T) {
	r, a := converse(t, cluster(1, 0, workers("small")...))
	for _, delta := range []int32{0, -1, math.MinInt32} {
		refused(t, a.increase(groupID("small"), delta), codes.InvalidArgument, "small")
	}
	for _, delta := range []int32{6, 5000, math.MaxInt32, math.MaxInt32 - 1} {
		refused(t, a.increase(groupID("small"), delta), codes.OutOfRange, "maxSize is 6")
	}
	for _, delta := range []int32{0, 1, math.MaxInt32} {
		refused(t, a.decrease(groupID("small"), delta), codes.InvalidArgument, "small")
	}
	refused(t, a.decrease(groupID("small"), math.MinInt32), codes.FailedPrecondition, "exist")
	var many []Node
	for range 10_000 {
		many = append(many, Node{Name: "nobody"})
	}
	refused(t, a.remove(groupID("small"), many...), codes.NotFound, "nobody")
	if got := r.ledger.taken(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// What the ledger says of its own troubles is not for clients.
func TestWhatCannotBeWrittenDownIsNotDone(t *testing.T) {
	r, a := converse(t, cluster(1, 0))
	r.ledger.fail = errors.New("etcdserver: no space at 10.0.0.7")
	err := a.increase(groupID("small"), 1)
	refused(t, err, codes.Unavailable, "not done")
	if strings.Contains(err.Error(), "10.0.0.7") || a.target(groupID("small")) != 1 {
		t.Error(err)
	}
}
