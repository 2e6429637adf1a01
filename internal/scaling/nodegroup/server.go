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

// GPULabel is the label of nodes with a GPU. No node has it, but Cluster Autoscaler requires a
// label.
const GPULabel = "cluster.ksctl.com/gpu"

// Server implements the externalgrpc service. The identity of the caller selects the cluster: a
// caller never sees the groups of another cluster.
type Server struct {
	externalgrpc.UnimplementedCloudProviderServer
	clusters *Clusters
	recorder ChangeRecorder
	clock    clock.PassiveClock
	identify func(context.Context) (types.NamespacedName, error)
}

var _ externalgrpc.CloudProviderServer = (*Server)(nil)

// NewServer returns a Server. identify returns the KsctlAutoScaler that calls; for requests of a
// Listener that is Caller.
func NewServer(clusters *Clusters, recorder ChangeRecorder, clock clock.PassiveClock,
	identify func(context.Context) (types.NamespacedName, error)) *Server {
	return &Server{clusters: clusters, recorder: recorder, clock: clock, identify: identify}
}

// callerIndex returns the state of the caller's cluster.
func (s *Server) callerIndex(ctx context.Context) (*index, error) {
	key, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	if x := s.clusters.recordRequest(key, s.clock.Now()); x != nil {
		return x, nil
	}
	// Not codes.NotFound: after a restart of the controller the cluster is published within
	// seconds.
	return nil, reject(codes.Unavailable, "%s: %v, or not loaded yet", key, ErrUnknownCluster)
}

// Refresh starts each loop of Cluster Autoscaler. It fails while the state of the cluster is
// uncertain, which ends that loop. The other reads do not fail then: Cluster Autoscaler would treat
// an error of NodeGroups as a cluster without groups.
func (s *Server) Refresh(ctx context.Context, _ *externalgrpc.RefreshRequest) (*externalgrpc.RefreshResponse, error) {
	x, err := s.callerIndex(ctx)
	if err != nil {
		return nil, err
	}
	if x.UnreadyReason != nil {
		return nil, notReadyError(x.Cluster)
	}
	return &externalgrpc.RefreshResponse{}, nil
}

// NodeGroups returns the published groups, even while Refresh fails.
func (s *Server) NodeGroups(ctx context.Context,
	_ *externalgrpc.NodeGroupsRequest) (*externalgrpc.NodeGroupsResponse, error) {
	x, err := s.callerIndex(ctx)
	if err != nil {
		return nil, err
	}
	out := &externalgrpc.NodeGroupsResponse{NodeGroups: make([]*externalgrpc.NodeGroup, len(x.Groups))}
	for i := range x.Groups {
		out.NodeGroups[i] = toNodeGroup(&x.Groups[i])
	}
	return out, nil
}

func toNodeGroup(g *Group) *externalgrpc.NodeGroup {
	return &externalgrpc.NodeGroup{Id: g.ID, MinSize: g.Min, MaxSize: g.Max,
		Debug: fmt.Sprintf("pool %s: %d of %d to %d", g.Name, g.Target, g.Min, g.Max)}
}

// NodeGroupForNode returns the group of a node or of a placeholder. Cluster Autoscaler may ask for
// a placeholder minutes after its failure was cleared. The ID "" means that the node is in no
// group.
func (s *Server) NodeGroupForNode(ctx context.Context,
	in *externalgrpc.NodeGroupForNodeRequest) (*externalgrpc.NodeGroupForNodeResponse, error) {
	x, err := s.callerIndex(ctx)
	if err != nil {
		return nil, err
	}
	out := &externalgrpc.NodeGroupForNodeResponse{NodeGroup: &externalgrpc.NodeGroup{}}
	if at, ok := x.groupForNode(toNode(in.GetNode())); ok {
		out.NodeGroup = toNodeGroup(&x.Groups[at])
	}
	return out, nil
}

func toNode(n *externalgrpc.ExternalGrpcNode) Node {
	return Node{Name: n.GetName(), ProviderID: n.GetProviderID()}
}

// NodeGroupTargetSize returns the desired number of machines of a group. An error would end the
// loop for all groups, so a pool that was removed since the loop began has size 0: Cluster
// Autoscaler then neither creates nor deletes machines for it, and the next loop does not list it.
func (s *Server) NodeGroupTargetSize(ctx context.Context,
	in *externalgrpc.NodeGroupTargetSizeRequest) (*externalgrpc.NodeGroupTargetSizeResponse, error) {
	x, err := s.callerIndex(ctx)
	if err != nil {
		return nil, err
	}
	at, err := x.group(in.GetId())
	if err != nil {
		if x.isOwnGroupID(in.GetId()) {
			return &externalgrpc.NodeGroupTargetSizeResponse{}, nil
		}
		return nil, err
	}
	return &externalgrpc.NodeGroupTargetSizeResponse{TargetSize: x.Groups[at].Target}, nil
}

// NodeGroupNodes returns the instances of a group. A group that was removed has none.
func (s *Server) NodeGroupNodes(ctx context.Context,
	in *externalgrpc.NodeGroupNodesRequest) (*externalgrpc.NodeGroupNodesResponse, error) {
	x, err := s.callerIndex(ctx)
	if err != nil {
		return nil, err
	}
	at, err := x.group(in.GetId())
	if err != nil {
		if x.isOwnGroupID(in.GetId()) {
			return &externalgrpc.NodeGroupNodesResponse{}, nil
		}
		return nil, err
	}
	return &externalgrpc.NodeGroupNodesResponse{Instances: x.instances(at)}, nil
}

// NodeGroupTemplateNodeInfo returns a template of the next node of a group. The template is never
// empty: an empty one crashes Cluster Autoscaler.
func (s *Server) NodeGroupTemplateNodeInfo(ctx context.Context,
	in *externalgrpc.NodeGroupTemplateNodeInfoRequest) (*externalgrpc.NodeGroupTemplateNodeInfoResponse, error) {
	x, err := s.callerIndex(ctx)
	if err != nil {
		return nil, err
	}
	at, err := x.group(in.GetId())
	if err != nil {
		return nil, err
	}
	node := x.Groups[at].Template
	if len(node) == 0 {
		fallback, _ := Template(&clusterv1.WorkerPool{Name: x.Groups[at].Name}, nil)
		if node, err = MarshalNode(fallback); err != nil {
			return nil, err
		}
	}
	return &externalgrpc.NodeGroupTemplateNodeInfoResponse{NodeBytes: node}, nil
}

// NodeGroupGetOptions returns no options for any group. The message has no field for the node
// startup time, so any returned options set it to zero, and Cluster Autoscaler then creates several
// machines for each pod.
func (s *Server) NodeGroupGetOptions(ctx context.Context,
	_ *externalgrpc.NodeGroupAutoscalingOptionsRequest) (*externalgrpc.NodeGroupAutoscalingOptionsResponse, error) {
	if _, err := s.callerIndex(ctx); err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupAutoscalingOptionsResponse{}, nil
}

// GPULabel returns a label that no node has.
func (s *Server) GPULabel(context.Context, *externalgrpc.GPULabelRequest) (*externalgrpc.GPULabelResponse, error) {
	return &externalgrpc.GPULabelResponse{Label: GPULabel}, nil
}

// GetAvailableGPUTypes returns none.
func (s *Server) GetAvailableGPUTypes(context.Context,
	*externalgrpc.GetAvailableGPUTypesRequest) (*externalgrpc.GetAvailableGPUTypesResponse, error) {
	return &externalgrpc.GetAvailableGPUTypesResponse{}, nil
}

// PricingNodePrice is not implemented.
func (s *Server) PricingNodePrice(context.Context,
	*externalgrpc.PricingNodePriceRequest) (*externalgrpc.PricingNodePriceResponse, error) {
	return nil, status.Error(codes.Unimplemented, "pricing is not supported")
}

// PricingPodPrice is not implemented.
func (s *Server) PricingPodPrice(context.Context,
	*externalgrpc.PricingPodPriceRequest) (*externalgrpc.PricingPodPriceResponse, error) {
	return nil, status.Error(codes.Unimplemented, "pricing is not supported")
}

// Cleanup does nothing.
func (s *Server) Cleanup(context.Context, *externalgrpc.CleanupRequest) (*externalgrpc.CleanupResponse, error) {
	return &externalgrpc.CleanupResponse{}, nil
}

// NodeGroupIncreaseSize adds machines to a group, as PlanIncrease decides.
func (s *Server) NodeGroupIncreaseSize(ctx context.Context,
	in *externalgrpc.NodeGroupIncreaseSizeRequest) (*externalgrpc.NodeGroupIncreaseSizeResponse, error) {
	err := s.recordChange(ctx, func(c *Cluster) ([]Change, error) {
		return PlanIncrease(c, in.GetId(), in.GetDelta(), s.clock.Now())
	})
	if err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupIncreaseSizeResponse{}, nil
}

// NodeGroupDeleteNodes deletes nodes, as PlanDelete decides.
func (s *Server) NodeGroupDeleteNodes(ctx context.Context,
	in *externalgrpc.NodeGroupDeleteNodesRequest) (*externalgrpc.NodeGroupDeleteNodesResponse, error) {
	nodes := make([]Node, len(in.GetNodes()))
	for i, n := range in.GetNodes() {
		nodes[i] = toNode(n)
	}
	err := s.recordChange(ctx, func(c *Cluster) ([]Change, error) { return PlanDelete(c, in.GetId(), nodes) })
	if err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupDeleteNodesResponse{}, nil
}

// NodeGroupDecreaseTargetSize cancels machines that do not exist yet, as PlanDecrease decides.
func (s *Server) NodeGroupDecreaseTargetSize(ctx context.Context,
	in *externalgrpc.NodeGroupDecreaseTargetSizeRequest) (*externalgrpc.NodeGroupDecreaseTargetSizeResponse, error) {
	err := s.recordChange(ctx, func(c *Cluster) ([]Change, error) { return PlanDecrease(c, in.GetId(), in.GetDelta()) })
	if err != nil {
		return nil, err
	}
	return &externalgrpc.NodeGroupDecreaseTargetSizeResponse{}, nil
}

// recordChange decides a change and records it before the request returns.
func (s *Server) recordChange(ctx context.Context, decide func(*Cluster) ([]Change, error)) error {
	x, err := s.callerIndex(ctx)
	if err != nil {
		return err
	}
	err = s.recorder.RecordChange(ctx, x.Key, decide)
	rejected := (*RejectedError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rejected):
		return rejected
	case errors.Is(err, ErrUnknownCluster):
		return reject(codes.Unavailable, "%s: %v", x.Key, ErrUnknownCluster)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	}
	return &recordError{err}
}
