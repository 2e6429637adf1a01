package nodegroup

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// GPULabel is what a node with a GPU would have. None has: Cluster Autoscaler wants some label.
const GPULabel = "cluster.ksctl.com/gpu"

// Server answers Cluster Autoscaler. Who asks decides which cluster is spoken of: no other one's
// groups are to be seen.
type Server struct {
	externalgrpc.UnimplementedCloudProviderServer
	clusters *Clusters
	ledger   Ledger
	clock    clock.PassiveClock
	identify func(context.Context) (types.NamespacedName, error)
}

var _ externalgrpc.CloudProviderServer = (*Server)(nil)

// NewServer makes a Server. identify says which KsctlAutoScaler asks, as Caller does of a
// request that a Listener let in.
func NewServer(clusters *Clusters, ledger Ledger, clock clock.PassiveClock, identify func(context.Context) (types.NamespacedName, error)) *Server {
	return &Server{clusters: clusters, ledger: ledger, clock: clock, identify: identify}
}

// caller is what is known of the cluster of who asks.
func (s *Server) caller(ctx context.Context) (*index, error) {
	key, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	if x := s.clusters.ask(key, s.clock.Now()); x != nil {
		return x, nil
	}
	// Not codes.NotFound: after a start of the controller it is a matter of seconds.
	return nil, refuse(codes.Unavailable, "%s: %v, or not yet", key, ErrUnknown)
}

// Refresh begins each loop of the autoscaler. It fails while nothing is known for sure, which
// ends that loop, and nothing else does as well: an error of NodeGroups would be taken for no groups.
func (s *Server) Refresh(ctx context.Context, _ *externalgrpc.RefreshRequest) (*externalgrpc.RefreshResponse, error) {
	x, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if x.Unready != nil {
		return nil, unready(x.Cluster)
	}
	return &externalgrpc.RefreshResponse{}, nil
}

// NodeGroups are those that are known, also while Refresh fails.
func (s *Server) NodeGroups(ctx context.Context, _ *externalgrpc.NodeGroupsRequest) (*externalgrpc.NodeGroupsResponse, error) {
	x, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	out := &externalgrpc.NodeGroupsResponse{NodeGroups: make([]*externalgrpc.NodeGroup, len(x.Groups))}
	for i := range x.Groups {
		out.NodeGroups[i] = shown(&x.Groups[i])
	}
	return out, nil
}

func shown(g *Group) *externalgrpc.NodeGroup {
	return &externalgrpc.NodeGroup{Id: g.ID, MinSize: g.Min, MaxSize: g.Max,
		Debug: fmt.Sprintf("pool %s: %d of %d to %d", g.Name, g.Target, g.Min, g.Max)}
}

// NodeGroupForNode finds the group of a node, or of a placeholder, which Cluster Autoscaler
// may ask for minutes after it was forgiven. The id "" says that none has it.
func (s *Server) NodeGroupForNode(ctx context.Context, in *externalgrpc.NodeGroupForNodeRequest) (*externalgrpc.NodeGroupForNodeResponse, error) {
	x, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	out := &externalgrpc.NodeGroupForNodeResponse{NodeGroup: &externalgrpc.NodeGroup{}}
	if at, ok := x.groupOf(nodeOf(in.GetNode())); ok {
		out.NodeGroup = shown(&x.Groups[at])
	}
	return out, nil
}

func nodeOf(n *externalgrpc.ExternalGrpcNode) Node {
	return Node{Name: n.GetName(), ProviderID: n.GetProviderID()}
}

// NodeGroupTargetSize is how many machines a group is to have. An error would end the loop for
// all groups, so a pool that was removed since the loop began has 0: Cluster Autoscaler neither
// makes nor deletes anything for it then, and in the next loop does not know it any more.
func (s *Server) NodeGroupTargetSize(ctx context.Context, in *externalgrpc.NodeGroupTargetSizeRequest) (*externalgrpc.NodeGroupTargetSizeResponse, error) {
	x, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	at, err := x.group(in.GetId())
	if err != nil {
		if x.own(in.GetId()) {
			return &externalgrpc.NodeGroupTargetSizeResponse{}, nil
		}
		return nil, err
	}
	return &externalgrpc.NodeGroupTargetSizeResponse{TargetSize: x.Groups[at].Target}, nil
}

// NodeGroupNodes are the Instances of a group; of one that was removed, none.
func (s *Server) NodeGroupNodes(ctx context.Context, in *externalgrpc.NodeGroupNodesRequest) (*externalgrpc.NodeGroupNodesResponse, error) {
	x, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	at, err := x.group(in.GetId())
	if err != nil {
		if x.own(in.GetId()) {
			return &externalgrpc.NodeGroupNodesResponse{}, nil
		}
		return nil, err
	}
	return &externalgrpc.NodeGroupNodesResponse{Instances: x.instances(at)}, nil
}

// NodeGroupTemplateNodeInfo is what the next node of a group would be like. It is never empty,
// which Cluster Autoscaler does not survive.
func (s *Server) NodeGroupTemplateNodeInfo(ctx context.Context, in *externalgrpc.NodeGroupTemplateNodeInfoRequest) (*externalgrpc.NodeGroupTemplateNodeInfoResponse, error) {
	x, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	at, err := x.group(in.GetId())
	if err != nil {
		return nil, err
	}
	node := x.Groups[at].Template
	if len(node) == 0 {
		guess, _ := Template(TemplateInput{Pool: clusterv1.WorkerPool{Name: x.Groups[at].Name}})
		if node, err = Marshal(guess); err != nil {
			return nil, err
		}
	}
	return &externalgrpc.NodeGroupTemplateNodeInfoResponse{NodeBytes: node}, nil
}

// NodeGroupGetOptions has none for any group: options that are given set the time in which a
// node has to be ready to nothing, as there is no field for it, and each pod gets several machines.
func (s *Server) NodeGroupGetOptions(ctx context.Context, _ *externalgrpc.NodeGroupAutoscalingOptionsRequest) (*externalgrpc.NodeGroupAutoscalingOptionsResponse, error) {
	if _, err := s.caller(ctx); err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupAutoscalingOptionsResponse{}, nil
}

// GPULabel is a label that no node has.
func (s *Server) GPULabel(context.Context, *externalgrpc.GPULabelRequest) (*externalgrpc.GPULabelResponse, error) {
	return &externalgrpc.GPULabelResponse{Label: GPULabel}, nil
}

// GetAvailableGPUTypes are none.
func (s *Server) GetAvailableGPUTypes(context.Context, *externalgrpc.GetAvailableGPUTypesRequest) (*externalgrpc.GetAvailableGPUTypesResponse, error) {
	return &externalgrpc.GetAvailableGPUTypesResponse{}, nil
}

// PricingNodePrice is not known.
func (s *Server) PricingNodePrice(context.Context, *externalgrpc.PricingNodePriceRequest) (*externalgrpc.PricingNodePriceResponse, error) {
	return nil, status.Error(codes.Unimplemented, "prices are not known")
}

// PricingPodPrice is not known.
func (s *Server) PricingPodPrice(context.Context, *externalgrpc.PricingPodPriceRequest) (*externalgrpc.PricingPodPriceResponse, error) {
	return nil, status.Error(codes.Unimplemented, "prices are not known")
}

// Cleanup has nothing to do.
func (s *Server) Cleanup(context.Context, *externalgrpc.CleanupRequest) (*externalgrpc.CleanupResponse, error) {
	return &externalgrpc.CleanupResponse{}, nil
}

// NodeGroupIncreaseSize asks for so many machines more, by Increase.
func (s *Server) NodeGroupIncreaseSize(ctx context.Context, in *externalgrpc.NodeGroupIncreaseSizeRequest) (*externalgrpc.NodeGroupIncreaseSizeResponse, error) {
	err := s.change(ctx, func(c *Cluster) ([]Change, error) { return Increase(c, in.GetId(), in.GetDelta(), s.clock.Now()) })
	if err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupIncreaseSizeResponse{}, nil
}

// NodeGroupDeleteNodes deletes nodes, by Delete.
func (s *Server) NodeGroupDeleteNodes(ctx context.Context, in *externalgrpc.NodeGroupDeleteNodesRequest) (*externalgrpc.NodeGroupDeleteNodesResponse, error) {
	nodes := make([]Node, len(in.GetNodes()))
	for i, n := range in.GetNodes() {
		nodes[i] = nodeOf(n)
	}
	err := s.change(ctx, func(c *Cluster) ([]Change, error) { return Delete(c, in.GetId(), nodes) })
	if err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupDeleteNodesResponse{}, nil
}

// NodeGroupDecreaseTargetSize gives up machines that are not there yet, by Decrease.
func (s *Server) NodeGroupDecreaseTargetSize(ctx context.Context, in *externalgrpc.NodeGroupDecreaseTargetSizeRequest) (*externalgrpc.NodeGroupDecreaseTargetSizeResponse, error) {
	err := s.change(ctx, func(c *Cluster) ([]Change, error) { return Decrease(c, in.GetId(), in.GetDelta()) })
	if err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupDecreaseTargetSizeResponse{}, nil
}

// change has something decided, and written down before it is answered.
func (s *Server) change(ctx context.Context, decide func(*Cluster) ([]Change, error)) error {
	x, err := s.caller(ctx)
	if err != nil {
		return err
	}
	err = s.ledger.Change(ctx, x.Key, decide)
	refusal := (*Refusal)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(err, ErrUnknown):
		return refuse(codes.Unavailable, "%s: %v", x.Key, ErrUnknown)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	}
	return &unwritten{err}
}
