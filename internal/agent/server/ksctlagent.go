package server

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// ksctlAgentServer implements the service of ksctl's own agent.
type ksctlAgentServer struct {
	agentpb.UnimplementedKsctlAgentServer
	server *Server
}

// Scale implements agentpb.KsctlAgentServer. It returns when the operation has ended. The operation
// continues if the caller disconnects; the same call then waits for the same operation.
func (k *ksctlAgentServer) Scale(ctx context.Context, r *agentpb.ReqScale) (*agentpb.ResScale, error) {
	c, err := k.server.findCluster("")
	if err != nil {
		return nil, err
	}
	running, err := c.matchingOperation(r)
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

// direction returns "up" or "down".
func direction(o agentpb.ScaleOperation) string {
	if o == agentpb.ScaleOperation_SCALE_DOWN {
		return "down"
	}
	return "up"
}

// matchingOperation returns the ID of the running operation if it matches the request, and "" if no
// operation runs. If another operation runs, it returns a gRPC status error.
func (c *clusterScaler) matchingOperation(r *agentpb.ReqScale) (string, error) {
	b, err := c.loadedOperations()
	if err != nil {
		return "", err
	}
	last := b.last()
	switch {
	case !last.running():
		return "", nil
	case last.Desired == r.GetDesiredNoOfWP() && last.direction() == direction(r.GetOperation()) &&
		(last.Size == r.GetNodeSizeOfWP() || last.direction() == "down"):
		return last.ID, nil
	}
	return "", last.busyError()
}

// beginScale starts an operation from the current number of workers and returns its ID. It refuses
// to scale up to fewer workers than exist, where ksctl's own agent forgets machines, and to scale
// down to more.
func (c *clusterScaler) beginScale(ctx context.Context, r *agentpb.ReqScale) (string, error) {
	machines, err := c.listWorkers(ctx)
	if err != nil {
		return "", status.Errorf(codes.Unavailable, "listing workers: %v", err)
	}
	current, desired := uint32(len(machines)), r.GetDesiredNoOfWP()
	wanted := direction(r.GetOperation())
	if wanted == "up" && desired < current || wanted == "down" && desired > current {
		return "", status.Errorf(codes.FailedPrecondition, "the cluster has %d workers: can't scale %s to %d", current,
			wanted, desired)
	}
	// The ID contains the time, so that a call after a failed operation with the same parameters
	// starts a new operation.
	now := strconv.FormatInt(time.Now().UnixNano(), 36)
	a := &agentpb.BeginRequest{Id: fmt.Sprintf("scale-%s-%d-%d-%s", wanted, current, desired, now), Current: current,
		Desired: desired}
	if desired > current {
		a.Size = r.GetNodeSizeOfWP()
	}
	begun, err := c.begin(ctx, a)
	return begun.ID, err
}

// LoadBalancer implements agentpb.KsctlAgentServer.
func (*ksctlAgentServer) LoadBalancer(context.Context, *agentpb.ReqLB) (*agentpb.ResLB, error) {
	return nil, status.Error(codes.Unimplemented, "this agent does not support load balancers")
}

// Application implements agentpb.KsctlAgentServer.
func (*ksctlAgentServer) Application(context.Context, *agentpb.ReqApplication) (*agentpb.ResApplication, error) {
	return nil, status.Error(codes.Unimplemented, "this agent does not install stacks: use a KsctlInstall")
}

// Storage implements agentpb.KsctlAgentServer.
func (k *ksctlAgentServer) Storage(ctx context.Context, r *agentpb.ReqStore) (*agentpb.ResStore, error) {
	if r.GetOperation() != agentpb.StorageOperation_IMPORT {
		return nil, status.Error(codes.Unimplemented, "this agent does not export states: use an ExportState")
	}
	if k.server.opts.StatesClient == nil {
		return nil, status.Error(codes.FailedPrecondition, "this agent does not import states: --no-states is set")
	}
	if err := k.server.importStates(ctx, r.GetData()); err != nil {
		return nil, err
	}
	return &agentpb.ResStore{}, nil
}
