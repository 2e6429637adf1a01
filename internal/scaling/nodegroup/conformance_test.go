package nodegroup

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// Recorded behavior: Cluster Autoscaler sends this many requests in each idle loop, for 10 workers
// in two groups, an empty group and 3 unmanaged nodes. None of them causes a write.
func TestIdleLoopIsServedFromMemory(t *testing.T) {
	c := newCluster(6, 4, workers("small", "small", "small", "small", "small", "small", "big", "big", "big", "big")...)
	c.Groups = append(c.Groups, Group{ID: groupID("zero"), Name: "zero", Max: 3, Template: []byte("zero")})
	r, a := startServerTest(t, c)
	r.recorder.fail = errors.New("unexpected write")
	for range 3 {
		a.refresh()
		ids := a.groups()
		if len(ids) != 3 {
			t.Fatal(ids)
		}
		for _, n := range nodesAt(c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9) {
			if a.groupOf(n) == "" {
				t.Errorf("%v is in no group", n)
			}
		}
		for range 7 { // Cluster Autoscaler does not cache that a node is in no group
			for _, name := range []string{"prod-vm-cp-0", "prod-vm-cp-1", "prod-vm-cp-2"} {
				if id := a.groupOf(Node{Name: name, ProviderID: "k3s://" + name}); id != "" {
					t.Errorf("%s is in group %s", name, id)
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
		if _, err := a.NodeGroupTemplateNodeInfo(t.Context(),
			&externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: ids[2]}); err != nil {
			t.Error(err)
		}
	}
	if got := r.clusters.LastRequest(prod); !got.Equal(r.clock.Now()) {
		t.Errorf("last request at %s", got)
	}
}

// Recorded behavior: with instance IDs that are not provider IDs of nodes, Cluster Autoscaler
// deleted 9 of 10 healthy workers.
func TestNodesWithoutProviderIDAreNotListedAsInstances(t *testing.T) {
	c := newCluster(3, 0, workers("small", "small", "small")...)
	for i := range c.Workers {
		c.Workers[i].ProviderID = ""
	}
	_, a := startServerTest(t, c)
	if got := a.unregistered(groupID("small"), "", "", ""); len(got) != 0 {
		t.Errorf("Cluster Autoscaler would delete %v", got)
	}
	for _, n := range nodesAt(c, 0, 1, 2) {
		if got := a.groupOf(n); got != groupID("small") {
			t.Errorf("%v is in group %q", n, got)
		}
	}
	a.ok(a.remove(groupID("small"), nodesAt(c, 2)...))
}

// Recorded behavior: when the defaults were returned, Cluster Autoscaler created three machines for
// one pod.
func TestOptionsAreNeverReturned(t *testing.T) {
	_, a := startServerTest(t, newCluster(1, 0, workers("small")...))
	for _, id := range []string{groupID("small"), groupID("removed"), ""} {
		out, err := a.NodeGroupGetOptions(t.Context(),
			&externalgrpc.NodeGroupAutoscalingOptionsRequest{Id: id,
				Defaults: &externalgrpc.NodeGroupAutoscalingOptions{
					ScaleDownUtilizationThreshold: .5, MaxNodeProvisionDuration: durationpb.New(time.Minute)}})
		if err != nil || out.GetNodeGroupAutoscalingOptions() != nil {
			t.Errorf("%q: %v, %v", id, out, err)
		}
	}
}

// Recorded behavior: an empty template crashes Cluster Autoscaler.
func TestTemplateIsNeverEmpty(t *testing.T) {
	c := newCluster(0, 0)
	c.Groups[0].Template = nil
	_, a := startServerTest(t, c)
	out, err := a.NodeGroupTemplateNodeInfo(t.Context(),
		&externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: groupID("small")})
	a.ok(err)
	var like corev1.Node
	if err := like.Unmarshal(out.GetNodeBytes()); err != nil || like.Status.Allocatable.Cpu().IsZero() {
		t.Errorf("%v, %+v", err, like)
	}
	_, err = a.NodeGroupTemplateNodeInfo(t.Context(),
		&externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: groupID("removed")})
	expectStatus(t, err, codes.NotFound, "removed")
}

// Refresh ends the loop. Cluster Autoscaler would treat an error of NodeGroups as no groups, and an
// error of NodeGroupTargetSize ends the loop for all groups.
func TestReadsSucceedWhileRefreshFails(t *testing.T) {
	c := newCluster(1, 0, workers("small")...)
	c.UnreadyReason = errors.New("the agent does not answer")
	_, a := startServerTest(t, c)
	_, err := a.Refresh(t.Context(), &externalgrpc.RefreshRequest{})
	expectStatus(t, err, codes.Unavailable, "the agent does not answer")
	if got := a.groups(); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := a.target(groupID("small")); got != 1 {
		t.Errorf("target %d", got)
	}
	if got := a.groupOf(nodesAt(c, 0)[0]); got != groupID("small") || len(a.instances(groupID("small"))) != 1 {
		t.Errorf("%q", got)
	}
	expectStatus(t, a.increase(groupID("small"), 1), codes.Unavailable, "the agent does not answer")
	expectStatus(t, a.remove(groupID("small"), nodesAt(c, 0)...), codes.Unavailable, "the agent does not answer")
	expectStatus(t, a.decrease(groupID("small"), -1), codes.Unavailable, "the agent does not answer")
}

func TestUnpublishedClusterIsUnavailable(t *testing.T) {
	r, a := startServerTest(t)
	_, refresh := a.Refresh(t.Context(), &externalgrpc.RefreshRequest{})
	_, groups := a.NodeGroups(t.Context(), &externalgrpc.NodeGroupsRequest{})
	for _, err := range []error{refresh, groups, a.increase(groupID("small"), 1)} {
		expectStatus(t, err, codes.Unavailable, prod.String())
	}
	r.clusters.Publish(newCluster(1, 0))
	a.refresh()
	r.clusters.Drop(prod)
	_, err := a.Refresh(t.Context(), &externalgrpc.RefreshRequest{})
	expectStatus(t, err, codes.Unavailable, prod.String())
}

// Cluster Autoscaler keeps the groups of a loop until the next one.
func TestRemovedPoolDoesNotEndTheLoop(t *testing.T) {
	r, a := startServerTest(t, newCluster(1, 1, workers("small", "big")...))
	a.refresh()
	r.recorder.edit(prod, func(c *Cluster) {
		c.Groups, c.Workers[1].Pool = c.Groups[:1], ""
	})
	if got := a.target(groupID("big")); got != 0 {
		t.Errorf("target %d", got)
	}
	if got := a.instances(groupID("big")); len(got) != 0 {
		t.Errorf("%v", got)
	}
	expectStatus(t, a.increase(groupID("big"), 1), codes.NotFound, "big")
}

func TestGroupsOfAnotherClusterAreInvisible(t *testing.T) {
	theirs := newCluster(2, 0, workers("small", "small")...)
	theirs.Key = other
	for i := range theirs.Groups {
		theirs.Groups[i].ID = GroupID(other, theirs.Groups[i].Name)
	}
	for i := range theirs.Workers {
		theirs.Workers[i].Node = "other-" + theirs.Workers[i].Node
		theirs.Workers[i].ProviderID = "k3s://" + theirs.Workers[i].Node
	}
	r, a := startServerTest(t, newCluster(1, 0, workers("small")...), theirs)
	id := GroupID(other, "small")
	for _, got := range a.groups() {
		if !strings.HasPrefix(got, "team/prod/") {
			t.Errorf("lists group %s of another cluster", got)
		}
	}
	if got := a.groupOf(nodesAt(theirs, 0)[0]); got != "" {
		t.Errorf("a node of another cluster is in group %s", got)
	}
	_, target := a.NodeGroupTargetSize(t.Context(), &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
	_, instances := a.NodeGroupNodes(t.Context(), &externalgrpc.NodeGroupNodesRequest{Id: id})
	_, template := a.NodeGroupTemplateNodeInfo(t.Context(), &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: id})
	for _, err := range []error{target, instances, template, a.increase(id, 1), a.decrease(id, -1),
		a.remove(id, nodesAt(theirs, 1)...)} {
		expectStatus(t, err, codes.NotFound, id)
	}
	expectStatus(t, a.remove(groupID("small"), nodesAt(theirs, 1)...), codes.NotFound, "other-")
	if got := r.recorder.popRecorded(); len(got) != 0 || !r.clusters.LastRequest(other).IsZero() {
		t.Errorf("%+v", got)
	}
}

func TestOtherMethodsAreAnswered(t *testing.T) {
	_, a := startServerTest(t, newCluster(1, 0))
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
	expectStatus(t, node, codes.Unimplemented, "")
	expectStatus(t, pod, codes.Unimplemented, "")
	_, err := a.CloudProviderClient.Cleanup(t.Context(), &externalgrpc.CleanupRequest{})
	a.ok(err)
	// Missing fields do not cause a panic.
	if _, err := a.NodeGroupForNode(t.Context(), &externalgrpc.NodeGroupForNodeRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := a.NodeGroupDeleteNodes(t.Context(), &externalgrpc.NodeGroupDeleteNodesRequest{Id: groupID("small"),
		Nodes: []*externalgrpc.ExternalGrpcNode{nil}}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}
