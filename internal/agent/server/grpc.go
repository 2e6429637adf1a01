package server

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// ServeOptions configure the gRPC server.
type ServeOptions struct {
	// Identity holds the credentials of the agent and of its callers; nil disables TLS and accepts
	// every caller.
	Identity *Identity
	// Reflection enables gRPC reflection for authenticated callers.
	Reflection bool
}

// Serve serves gRPC calls on a listener and executes operations until ctx ends. It returns when all
// calls and operations have stopped.
func (s *Server) Serve(ctx context.Context, listener net.Listener, l ServeOptions) error {
	g, err := s.newGRPCServer(l)
	if err != nil {
		return err
	}
	agentpb.RegisterWorkersServer(g, &workersServer{server: s})
	agentpb.RegisterKsctlAgentServer(g, &ksctlAgentServer{server: s})
	checks := health.NewServer()
	checks.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(g, checks)
	if l.Reflection {
		reflection.Register(g)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx) })
	group.Go(func() {
		if s.AwaitReady(ctx) == nil {
			checks.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
		}
		<-ctx.Done()
		checks.Shutdown()
		stopGracefully(g)
	})
	err = g.Serve(listener)
	cancel()
	group.Wait()
	return err
}

// stopGracefully waits for running calls and cuts them off after callStopTimeout.
func stopGracefully(g *grpc.Server) {
	ended := make(chan struct{})
	go func() {
		g.GracefulStop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(callStopTimeout):
		g.Stop()
		<-ended
	}
}

// newGRPCServer returns a gRPC server that authenticates callers and recovers from panics.
func (s *Server) newGRPCServer(l ServeOptions) (*grpc.Server, error) {
	authenticate := func(context.Context, string) error { return nil }
	options := []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second,
			PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Minute}),
		grpc.ConnectionTimeout(20 * time.Second), grpc.MaxConcurrentStreams(100),
	}
	if l.Identity != nil {
		g, err := newAuthenticator(*l.Identity, s.opts.Log)
		if err != nil {
			return nil, err
		}
		authenticate = g.authenticate
		options = append(options, grpc.Creds(credentials.NewTLS(g.tlsConfig())))
	}
	unary := func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (res any, err error) {
		defer func() { err = s.recordCall(info.FullMethod, recover(), err) }()
		if err := authenticate(ctx, info.FullMethod); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
	stream := func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() { err = s.recordCall(info.FullMethod, recover(), err) }()
		if err := authenticate(ss.Context(), info.FullMethod); err != nil {
			return err
		}
		return handler(srv, ss)
	}
	return grpc.NewServer(append(options, grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))...), nil
}

// recordCall counts a call and returns its error. A panic becomes an error with code Internal.
func (s *Server) recordCall(method string, panicked any, err error) error {
	if panicked != nil {
		s.opts.Log.Error(fmt.Errorf("%v", panicked), "a call panicked", "method", method, "stack",
			string(debug.Stack()))
		err = status.Error(codes.Internal, "internal error of the agent: see its log")
	}
	s.opts.Metrics.calls.WithLabelValues(method, status.Code(err).String()).Inc()
	return err
}
