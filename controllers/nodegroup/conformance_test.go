package nodegroup

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/nodegroup/externalgrpc"
)

// autoscaler asks as Cluster Autoscaler does: what it was seen to ask in which order.
type autoscaler struct {
	testing.TB
	externalgrpc.CloudProviderClient
}

func (a autoscaler) ok(err error) {
	a.Helper()
	if err != nil {
		a.Fatalf("%s: %v", status.Code(err), err)
	}
}

func (a autoscaler) groups() []string {
	a.Helper()
	out, err := a.NodeGroups(a.Context(), &externalgrpc.NodeGroupsRequest{})
	a.ok(err)
	var ids []string
	for _, g := range out.GetNodeGroups() {
		ids = append(ids, g.GetId())
	}
	return ids
}

func (a autoscaler) groupOf(n Node) string {
	a.Helper()
	out, err := a.NodeGroupForNode(a.Context(), &externalgrpc.NodeGroupForNodeRequest{Node: sent(n)})
	a.ok(err)
	return out.GetNodeGroup().GetId()
}

func sent(n Node) *externalgrpc.ExternalGrpcNode {
	return &externalgrpc.ExternalGrpcNode{Name: n.Name, ProviderID: n.ProviderID, Labels: map[string]string{"kubernetes.io/os": "linux"}}
}

func (a autoscaler) target(id string) int32 {
	a.Helper()
	out, err := a.NodeGroupTargetSize(a.Context(), &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
	a.ok(err)
	return out.GetTargetSize()
}

func (a autoscaler) instances(id string) []string {
	a.Helper()
	out, err := a.NodeGroupNodes(a.Context(), &externalgrpc.NodeGroupNodesRequest{Id: id})
	a.ok(err)
	return listed(out.GetInstances())
}

func (a autoscaler) increase(id string, delta int32) error {
	_, err := a.NodeGroupIncreaseSize(a.Context(), &externalgrpc.NodeGroupIncreaseSizeRequest{Id: id, Delta: delta})
	return err
}

func (a autoscaler) decrease(id string, delta int32) error {
	_, err := a.NodeGroupDecreaseTargetSize(a.Context(), &externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: id, Delta: delta})
	return err
}

func (a autoscaler) remove(id string, all ...Node) error {
	in := &externalgrpc.NodeGroupDeleteNodesRequest{Id: id}
	for _, n := range all {
		in.Nodes = append(in.Nodes, sent(n))
	}
	_, err := a.NodeGroupDeleteNodes(a.Context(), in)
	return err
}

func (a autoscaler) begin() {
	a.Helper()
	_, err := a.Refresh(a.Context(), &externalgrpc.RefreshRequest{})
	a.ok(err)
}

// unregistered are instances that Cluster Autoscaler takes for machines that have not joined: it
// compares their ids with the providerIDs of nodes, and nothing else.
func (a autoscaler) unregistered(id string, providerIDs ...string) []Node {
	a.Helper()
	out, err := a.NodeGroupNodes(a.Context(), &externalgrpc.NodeGroupNodesRequest{Id: id})
	a.ok(err)
	var found []Node
	for _, i := range out.GetInstances() {
		if !slices.Contains(providerIDs, i.GetId()) {
			found = append(found, Node{Name: i.GetId(), ProviderID: i.GetId()})
		}
	}
	return found
}

func converse(t *testing.T, clusters ...*Cluster) (*rig, autoscaler) {
	t.Helper()
	r := newRig(t, clusters...).start()
	return r, autoscaler{TB: t, CloudProviderClient: r.as(prod)}
}

// refused is for what has to be.
func refused(t *testing.T, err error, code codes.Code, says string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), says) {
		t.Errorf("%v, want %s with %q", err, code, says)
	}
}

// Measured: so many requests in each idle loop, with 10 workers in two groups, an empty group
// and 3 nodes that are not managed. Nothing of it is written, or asked of anybody.
func TestAnIdleLoopIsAnsweredFromMemory(t *testing.T) {
	c := cluster(6, 4, workers("small", "small", "small", "small", "small", "small", "big", "big", "big", "big")...)
	c.Groups = append(c.Groups, Group{ID: groupID("zero"), Name: "zero", Max: 3, Template: []byte("zero")})
	r, a := converse(t, c)
	r.ledger.fail = errors.New("nothing may be written")
	for range 3 {
		a.begin()
		ids := a.groups()
		if len(ids) != 3 {
			t.Fatal(ids)
		}
		for _, n := range nodes(c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9) {
			if a.groupOf(n) == "" {
				t.Errorf("%v is of no group", n)
			}
		}
		for range 7 { // an answer of none is not kept
			for _, name := range []string{"prod-vm-cp-0", "prod-vm-cp-1", "prod-vm-cp-2"} {
				if id := a.groupOf(Node{Name: name, ProviderID: "k3s://" + name}); id != "" {
					t.Errorf("%s is of %s", name, id)
				}
			}
		}
		for range 3 {
			for i, want := range []int32{6, 4, 0} {
				if got := a.target(ids[i]); got != want {
					t.Errorf("%s: %d, want %d", ids[i], got, want)
				}
			}
		}
		for range 40 {
			_, err := a.NodeGroupGetOptions(t.Context(), &externalgrpc.NodeGroupAutoscalingOptionsRequest{Id: ids[0]})
			a.ok(err)
		}
		if _, err := a.NodeGroupTemplateNodeInfo(t.Context(), &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: ids[2]}); err != nil {
			t.Error(err)
		}
	}
	if got := r.clusters.LastAsked(prod); !got.Equal(r.clock.Now()) {
		t.Errorf("last asked at %s", got)
	}
}

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

// Measured: with ids that are no providerID of a node, 9 of 10 healthy workers were deleted.
func TestNodesWithoutAProviderIDAreNotTakenForMachinesThatNeverJoined(t *testing.T) {
	c := cluster(3, 0, workers("small", "small", "small")...)
	for i := range c.Workers {
		c.Workers[i].ProviderID = ""
	}
	_, a := converse(t, c)
	if got := a.unregistered(groupID("small"), "", "", ""); len(got) != 0 {
		t.Errorf("%v would be deleted", got)
	}
	for _, n := range nodes(c, 0, 1, 2) {
		if got := a.groupOf(n); got != groupID("small") {
			t.Errorf("%v is of %q", n, got)
		}
	}
	a.ok(a.remove(groupID("small"), nodes(c, 2)...))
}

// Measured: with the defaults sent back, one pod got three machines.
func TestOptionsAreNeverSentBack(t *testing.T) {
	_, a := converse(t, cluster(1, 0, workers("small")...))
	for _, id := range []string{groupID("small"), groupID("removed"), ""} {
		out, err := a.NodeGroupGetOptions(t.Context(), &externalgrpc.NodeGroupAutoscalingOptionsRequest{Id: id, Defaults: &externalgrpc.NodeGroupAutoscalingOptions{
			ScaleDownUtilizationThreshold: .5, MaxNodeProvisionDuration: durationpb.New(time.Minute)}})
		if err != nil || out.GetNodeGroupAutoscalingOptions() != nil {
			t.Errorf("%q: %v, %v", id, out, err)
		}
	}
}

// Measured: an empty template ends Cluster Autoscaler's process.
func TestATemplateIsNeverEmptyOrLeftOut(t *testing.T) {
	c := cluster(0, 0)
	c.Groups[0].Template = nil
	_, a := converse(t, c)
	out, err := a.NodeGroupTemplateNodeInfo(t.Context(), &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: groupID("small")})
	a.ok(err)
	var like corev1.Node
	if err := like.Unmarshal(out.GetNodeBytes()); err != nil || like.Status.Allocatable.Cpu().IsZero() {
		t.Errorf("%v, %+v", err, like)
	}
	_, err = a.NodeGroupTemplateNodeInfo(t.Context(), &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: groupID("removed")})
	refused(t, err, codes.NotFound, "removed")
}

// Rule 5: the loop ends at Refresh. An error of NodeGroups would be taken for no groups, and one
// of a target ends the loop for all groups.
func TestOnlyRefreshFailsWhileNothingIsKnown(t *testing.T) {
	c := cluster(1, 0, workers("small")...)
	c.Unready = errors.New("the agent does not answer")
	_, a := converse(t, c)
	_, err := a.Refresh(t.Context(), &externalgrpc.RefreshRequest{})
	refused(t, err, codes.Unavailable, "the agent does not answer")
	if got := a.groups(); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := a.target(groupID("small")); got != 1 {
		t.Errorf("target %d", got)
	}
	if got := a.groupOf(nodes(c, 0)[0]); got != groupID("small") || len(a.instances(groupID("small"))) != 1 {
		t.Errorf("%q", got)
	}
	refused(t, a.increase(groupID("small"), 1), codes.Unavailable, "the agent does not answer")
	refused(t, a.remove(groupID("small"), nodes(c, 0)...), codes.Unavailable, "the agent does not answer")
	refused(t, a.decrease(groupID("small"), -1), codes.Unavailable, "the agent does not answer")
}

func TestOfAClusterThatIsNotKnownYetNothingIsSaid(t *testing.T) {
	r, a := converse(t)
	_, refresh := a.Refresh(t.Context(), &externalgrpc.RefreshRequest{})
	_, groups := a.NodeGroups(t.Context(), &externalgrpc.NodeGroupsRequest{})
	for _, err := range []error{refresh, groups, a.increase(groupID("small"), 1)} {
		refused(t, err, codes.Unavailable, prod.String())
	}
	r.clusters.Publish(cluster(1, 0))
	a.begin()
	r.clusters.Drop(prod)
	_, err := a.Refresh(t.Context(), &externalgrpc.RefreshRequest{})
	refused(t, err, codes.Unavailable, prod.String())
}

// It keeps the groups of a loop until the next one.
func TestAPoolThatWasRemovedEndsNoLoop(t *testing.T) {
	r, a := converse(t, cluster(1, 1, workers("small", "big")...))
	a.begin()
	r.ledger.edit(prod, func(c *Cluster) {
		c.Groups, c.Workers[1].Pool = c.Groups[:1], ""
	})
	if got := a.target(groupID("big")); got != 0 {
		t.Errorf("target %d", got)
	}
	if got := a.instances(groupID("big")); len(got) != 0 {
		t.Errorf("%v", got)
	}
	refused(t, a.increase(groupID("big"), 1), codes.NotFound, "big")
}

func TestAnotherClustersGroupsAreNotSeen(t *testing.T) {
	theirs := cluster(2, 0, workers("small", "small")...)
	theirs.Key = other
	for i := range theirs.Groups {
		theirs.Groups[i].ID = GroupID(other, theirs.Groups[i].Name)
	}
	for i := range theirs.Workers {
		theirs.Workers[i].Node = "other-" + theirs.Workers[i].Node
		theirs.Workers[i].ProviderID = "k3s://" + theirs.Workers[i].Node
	}
	r, a := converse(t, cluster(1, 0, workers("small")...), theirs)
	id := GroupID(other, "small")
	for _, got := range a.groups() {
		if !strings.HasPrefix(got, "team/prod/") {
			t.Errorf("sees %s", got)
		}
	}
	if got := a.groupOf(nodes(theirs, 0)[0]); got != "" {
		t.Errorf("their node is of %s", got)
	}
	_, target := a.NodeGroupTargetSize(t.Context(), &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
	_, instances := a.NodeGroupNodes(t.Context(), &externalgrpc.NodeGroupNodesRequest{Id: id})
	_, template := a.NodeGroupTemplateNodeInfo(t.Context(), &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: id})
	for _, err := range []error{target, instances, template, a.increase(id, 1), a.decrease(id, -1), a.remove(id, nodes(theirs, 1)...)} {
		refused(t, err, codes.NotFound, id)
	}
	refused(t, a.remove(groupID("small"), nodes(theirs, 1)...), codes.NotFound, "other-")
	if got := r.ledger.taken(); len(got) != 0 || !r.clusters.LastAsked(other).IsZero() {
		t.Errorf("%+v", got)
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

func TestTheRestIsAnswered(t *testing.T) {
	_, a := converse(t, cluster(1, 0))
	for range 2 {
		label, err := a.GPULabel(t.Context(), &externalgrpc.GPULabelRequest{})
		if err != nil || label.GetLabel() == "" {
			t.Errorf("%v, %v", label, err)
		}
		gpus, err := a.GetAvailableGPUTypes(t.Context(), &externalgrpc.GetAvailableGPUTypesRequest{})
		if err != nil || len(gpus.GetGpuTypes()) > 0 {
			t.Errorf("%v, %v", gpus, err)
		}
	}
	_, node := a.PricingNodePrice(t.Context(), &externalgrpc.PricingNodePriceRequest{})
	_, pod := a.PricingPodPrice(t.Context(), &externalgrpc.PricingPodPriceRequest{})
	refused(t, node, codes.Unimplemented, "")
	refused(t, pod, codes.Unimplemented, "")
	_, err := a.CloudProviderClient.Cleanup(t.Context(), &externalgrpc.CleanupRequest{})
	a.ok(err)
	// What it leaves out is no reason to end.
	if _, err := a.NodeGroupForNode(t.Context(), &externalgrpc.NodeGroupForNodeRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := a.NodeGroupDeleteNodes(t.Context(), &externalgrpc.NodeGroupDeleteNodesRequest{Id: groupID("small"), Nodes: []*externalgrpc.ExternalGrpcNode{nil}}); status.Code(err) != codes.NotFound {
		t.Error(err)
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
