package server

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
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
)

// Listening is how the agent is called.
type Listening struct {
	// Identity of the agent and of its callers; nil: without TLS, and anybody may call.
	Identity *Identity
	// Reflection has the services described to those who may call.
	Reflection bool
}

// healthMethods are open to everybody.
const healthMethods = "/grpc.health.v1.Health/"

// Serve answers calls and does what they begin, until ctx ends. It returns when everything has.
func (s *Server) Serve(ctx context.Context, on net.Listener, l Listening) error {
	g, err := s.newGRPC(l)
	if err != nil {
		return err
	}
	s.Register(g)
	checks := health.NewServer()
	checks.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(g, checks)
	if l.Reflection {
		reflection.Register(g)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() { s.Run(ctx) })
	parts.Go(func() {
		if s.AwaitReady(ctx) == nil {
			checks.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
		}
		<-ctx.Done()
		checks.Shutdown()
		s.quit(g)
	})
	err = g.Serve(on)
	cancel()
	parts.Wait()
	return err
}

// quit ends what is answered: calls that go on for too long are cut off.
func (s *Server) quit(g *grpc.Server) {
	var stopping sync.WaitGroup
	ended := make(chan struct{})
	stopping.Go(func() {
		g.GracefulStop()
		close(ended)
	})
	t := s.opts.Clock.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C():
		g.Stop()
	}
	stopping.Wait()
}

// newGRPC makes the server of the calls.
func (s *Server) newGRPC(l Listening) (*grpc.Server, error) {
	admit := func(context.Context) error { return nil }
	options := []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Minute}),
		grpc.ConnectionTimeout(20 * time.Second), grpc.MaxConcurrentStreams(100),
	}
	if l.Identity != nil {
		g, err := newGate(*l.Identity, s.opts.Clock, s.opts.Log)
		if err != nil {
			return nil, err
		}
		admit = g.admit
		options = append(options, grpc.Creds(credentials.NewTLS(g.tls())))
	}
	unary := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
		defer func() { err = s.answered(info.FullMethod, recover(), err) }()
		if err := admitted(ctx, info.FullMethod, admit); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
	stream := func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() { err = s.answered(info.FullMethod, recover(), err) }()
		if err := admitted(ss.Context(), info.FullMethod, admit); err != nil {
			return err
		}
		return handler(srv, ss)
	}
	return grpc.NewServer(append(options, grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))...), nil
}

func admitted(ctx context.Context, method string, admit func(context.Context) error) error {
	if strings.HasPrefix(method, healthMethods) {
		return nil
	}
	return admit(ctx)
}

// answered takes note of an answer. A panic becomes one.
func (s *Server) answered(method string, panicked any, err error) error {
	if panicked != nil {
		s.opts.Log.Error(fmt.Errorf("%v", panicked), "a call panicked", "method", method, "stack", string(debug.Stack()))
		err = status.Error(codes.Internal, "the agent itself is at fault; its log says more")
	}
	s.opts.Metrics.called(method, status.Code(err))
	return err
}
