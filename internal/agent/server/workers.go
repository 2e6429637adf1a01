package server

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// workers is the service of our own.
type workers struct {
	agentpb.UnimplementedWorkersServer
	server *Server
}

// List implements agentpb.WorkersServer.
func (w *workers) List(ctx context.Context, r *agentpb.ListRequest) (*agentpb.ListResponse, error) {
	c, err := w.server.cluster(r.GetCluster())
	if err != nil {
		return nil, err
	}
	// First how the operation stands: one that has ended is not answered with workers of before.
	b, err := c.open()
	if err != nil {
		return nil, err
	}
	out := &agentpb.ListResponse{}
	if last, ok := b.last(); ok {
		out.Operation = c.on(last)
	}
	machines, err := c.list(ctx)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "which workers there are is not known: %v", err)
	}
	if slices.ContainsFunc(machines, func(m provisioner.Worker) bool { return m.Node == "" }) {
		nodes, err := c.nodes(ctx, "0")
		if err != nil {
			// Which node a worker is may be unknown.
			c.log.Error(err, "the nodes of the workers are not known")
		}
		fill(machines, nodes)
	}
	for _, m := range machines {
		out.Workers = append(out.Workers, &agentpb.Worker{Index: m.Index, Name: m.Name, Size: m.Size, Node: m.Node})
	}
	return out, nil
}

// Begin implements agentpb.WorkersServer.
func (w *workers) Begin(ctx context.Context, r *agentpb.BeginRequest) (*agentpb.BeginResponse, error) {
	c, err := w.server.cluster(r.GetCluster())
	if err != nil {
		return nil, err
	}
	begun, err := c.begin(ctx, ask{id: r.GetId(), current: r.GetCurrent(), desired: r.GetDesired(), size: r.GetSize()})
	if err != nil {
		return nil, err
	}
	return &agentpb.BeginResponse{Operation: c.on(begun)}, nil
}
