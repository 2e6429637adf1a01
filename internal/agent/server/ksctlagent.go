package server

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// ksctlAgent is the service that ksctl's own agent has.
type ksctlAgent struct {
	agentpb.UnimplementedKsctlAgentServer
	server *Server
}

// Scale implements agentpb.KsctlAgentServer. It answers when the operation has ended, which goes
// on when the caller is gone; asked the same again meanwhile, it waits for the same one.
func (k *ksctlAgent) Scale(ctx context.Context, r *agentpb.ReqScale) (*agentpb.ResScale, error) {
	c, err := k.server.cluster("")
	if err != nil {
		return nil, err
	}
	running, err := c.joinable(r)
	if err != nil {
		return nil, err
	}
	if running == "" {
		if running, err = c.beginScale(ctx, r); err != nil {
			return nil, err
		}
	}
	ended, err := c.await(ctx, running)
	if err != nil {
		return nil, err
	}
	switch ended.Failure {
	case "":
		return &agentpb.ResScale{IsUpdated: true}, nil
	case agentpb.Operation_OUT_OF_RESOURCES.String():
		return nil, status.Error(codes.ResourceExhausted, ended.Message)
	case agentpb.Operation_DRAIN.String():
		return nil, status.Error(codes.FailedPrecondition, ended.Message)
	}
	return nil, status.Error(codes.Internal, ended.Message)
}

// direction of a call.
func direction(o agentpb.ScaleOperation) string {
	if o == agentpb.ScaleOperation_SCALE_DOWN {
		return "down"
	}
	return "up"
}

// joinable is the operation that runs, if it is what is asked for; "" if none runs.
func (c *cluster) joinable(r *agentpb.ReqScale) (string, error) {
	b, err := c.open()
	if err != nil {
		return "", err
	}
	last, ok := b.last()
	switch {
	case !ok || !last.running():
		return "", nil
	case last.Desired == r.GetDesiredNoOfWP() && last.direction() == direction(r.GetOperation()) && (last.Size == r.GetNodeSizeOfWP() || last.direction() == "down"):
		return last.ID, nil
	}
	return "", status.Errorf(codes.FailedPrecondition, "operation %s is at work, from %d to %d workers: wait until it has ended", last.ID, last.From, last.Desired)
}

// beginScale begins what is asked for by the number of workers that there are. Asked to scale up to
// less than there are, ksctl's own agent forgets machines; here it is refused.
func (c *cluster) beginScale(ctx context.Context, r *agentpb.ReqScale) (string, error) {
	machines, err := c.list(ctx)
	if err != nil {
		return "", status.Errorf(codes.Unavailable, "which workers there are is not known: %v", err)
	}
	have, desired := uint32(len(machines)), r.GetDesiredNoOfWP()
	towards := direction(r.GetOperation())
	if towards == "up" && desired < have || towards == "down" && desired > have {
		return "", status.Errorf(codes.FailedPrecondition, "there are %d workers: scaling %s can't make them %d", have, towards, desired)
	}
	// The time keeps one that failed from being taken for the next of the same parameters.
	now := strconv.FormatInt(c.opts.Clock.Now().UnixNano(), 36)
	a := ask{id: fmt.Sprintf("scale-%s-%d-%d-%s", towards, have, desired, now), current: have, desired: desired}
	if desired > have {
		a.size = r.GetNodeSizeOfWP()
	}
	begun, err := c.begin(ctx, a)
	return begun.ID, err
}

// LoadBalancer implements agentpb.KsctlAgentServer.
func (*ksctlAgent) LoadBalancer(context.Context, *agentpb.ReqLB) (*agentpb.ResLB, error) {
	return nil, status.Error(codes.Unimplemented, "this agent makes no load balancers")
}

// Application implements agentpb.KsctlAgentServer.
func (*ksctlAgent) Application(context.Context, *agentpb.ReqApplication) (*agentpb.ResApplication, error) {
	return nil, status.Error(codes.Unimplemented, "this agent installs no stacks: a KsctlInstall does")
}

// Storage implements agentpb.KsctlAgentServer.
func (k *ksctlAgent) Storage(ctx context.Context, r *agentpb.ReqStore) (*agentpb.ResStore, error) {
	if r.GetOperation() != agentpb.StorageOperation_IMPORT {
		return nil, status.Error(codes.Unimplemented, "this agent exports nothing: an ExportState does")
	}
	if k.server.opts.States == nil {
		return nil, status.Error(codes.FailedPrecondition, "this agent has no store of ksctl's")
	}
	if err := k.server.importStates(ctx, r.GetData()); err != nil {
		return nil, err
	}
	return &agentpb.ResStore{}, nil
}
