package nodegroup

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
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
