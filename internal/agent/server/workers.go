package server

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// workersServer implements the Workers service.
type workersServer struct {
	agentpb.UnimplementedWorkersServer
	server *Server
}

// List implements agentpb.WorkersServer.
func (w *workersServer) List(ctx context.Context, r *agentpb.ListRequest) (*agentpb.ListResponse, error) {
	c, err := w.server.findCluster(r.GetCluster())
	if err != nil {
		return nil, err
	}
	// Read the operation before the workers: the list must not be older than the end of an
	// operation that it is returned with.
	b, err := c.loadedOperations()
	if err != nil {
		return nil, err
	}
	out := &agentpb.ListResponse{}
	if len(b.Operations) > 0 {
		out.Operation = c.operationProto(b.last())
	}
	machines, err := c.listWorkers(ctx)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "listing workers: %v", err)
	}
	if slices.ContainsFunc(machines, func(m provisioner.Worker) bool { return m.Node == "" }) {
		nodes, err := c.listNodes(ctx, "0")
		if err != nil {
			// Node names are optional.
			c.log.Error(err, "listing nodes failed; returning workers without the names of their nodes")
		}
		setNodeNames(machines, nodes)
	}
	for _, m := range machines {
		out.Workers = append(out.Workers, &agentpb.Worker{Index: m.Index, Name: m.Name, Size: m.Size, Node: m.Node})
	}
	return out, nil
}

// Begin implements agentpb.WorkersServer.
func (w *workersServer) Begin(ctx context.Context, r *agentpb.BeginRequest) (*agentpb.BeginResponse, error) {
	c, err := w.server.findCluster(r.GetCluster())
	if err != nil {
		return nil, err
	}
	begun, err := c.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	return &agentpb.BeginResponse{Operation: c.operationProto(begun)}, nil
}
