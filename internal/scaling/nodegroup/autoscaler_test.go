package nodegroup

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// fakeAutoscaler sends the requests of Cluster Autoscaler, as recorded from a real one.
type fakeAutoscaler struct {
	testing.TB
	externalgrpc.CloudProviderClient
}

func (a fakeAutoscaler) ok(err error) {
	a.Helper()
	if err != nil {
		a.Fatalf("%s: %v", status.Code(err), err)
	}
}

func (a fakeAutoscaler) groups() []string {
	a.Helper()
	out, err := a.NodeGroups(a.Context(), &externalgrpc.NodeGroupsRequest{})
	a.ok(err)
	var ids []string
	for _, g := range out.GetNodeGroups() {
		ids = append(ids, g.GetId())
	}
	return ids
}

func (a fakeAutoscaler) groupOf(n Node) string {
	a.Helper()
	out, err := a.NodeGroupForNode(a.Context(), &externalgrpc.NodeGroupForNodeRequest{Node: grpcNode(n)})
	a.ok(err)
	return out.GetNodeGroup().GetId()
}

func grpcNode(n Node) *externalgrpc.ExternalGrpcNode {
	return &externalgrpc.ExternalGrpcNode{Name: n.Name, ProviderID: n.ProviderID,
		Labels: map[string]string{"kubernetes.io/os": "linux"}}
}

func (a fakeAutoscaler) target(id string) int32 {
	a.Helper()
	out, err := a.NodeGroupTargetSize(a.Context(), &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
	a.ok(err)
	return out.GetTargetSize()
}

func (a fakeAutoscaler) instances(id string) []string {
	a.Helper()
	out, err := a.NodeGroupNodes(a.Context(), &externalgrpc.NodeGroupNodesRequest{Id: id})
	a.ok(err)
	return formatInstances(out.GetInstances())
}

func (a fakeAutoscaler) increase(id string, delta int32) error {
	_, err := a.NodeGroupIncreaseSize(a.Context(), &externalgrpc.NodeGroupIncreaseSizeRequest{Id: id, Delta: delta})
	return err
}

func (a fakeAutoscaler) decrease(id string, delta int32) error {
	_, err := a.NodeGroupDecreaseTargetSize(a.Context(),
		&externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: id, Delta: delta})
	return err
}

func (a fakeAutoscaler) remove(id string, all ...Node) error {
	in := &externalgrpc.NodeGroupDeleteNodesRequest{Id: id}
	for _, n := range all {
		in.Nodes = append(in.Nodes, grpcNode(n))
	}
	_, err := a.NodeGroupDeleteNodes(a.Context(), in)
	return err
}

func (a fakeAutoscaler) refresh() {
	a.Helper()
	_, err := a.Refresh(a.Context(), &externalgrpc.RefreshRequest{})
	a.ok(err)
}

// unregistered returns the instances that Cluster Autoscaler treats as machines that have not
// joined: it only compares their IDs with the provider IDs of nodes.
func (a fakeAutoscaler) unregistered(id string, providerIDs ...string) []Node {
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

func startServerTest(t *testing.T, clusters ...*Cluster) (*serverTest, fakeAutoscaler) {
	t.Helper()
	r := newServerTest(t, clusters...).start()
	return r, fakeAutoscaler{TB: t, CloudProviderClient: r.connectAs(prod)}
}

// expectStatus checks that err has a gRPC code and that its message contains a text.
func expectStatus(t *testing.T, err error, code codes.Code, message string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), message) {
		t.Errorf("%v, want %s with %q", err, code, message)
	}
}
