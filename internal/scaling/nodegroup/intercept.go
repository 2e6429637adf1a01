package nodegroup

import (
	"context"
	"errors"
	"path"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

// requestTimeout bounds each request. Cluster Autoscaler's own default timeout is 5 seconds.
const requestTimeout = 10 * time.Second

// intercept wraps each request: it counts and logs it, bounds its time, and recovers from panics.
func (l *Listener) intercept(ctx context.Context, in any, info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler) (any, error) {
	start := l.Clock.Now()
	out, err := l.handle(ctx, in, info, next)
	method, code, duration := path.Base(info.FullMethod), status.Code(err), l.Clock.Since(start)
	l.Metrics.NodeGroupRequest(method, code.String(), duration)
	if values := changeLogValues(in); values != nil {
		l.logChange(ctx, method, values, duration, err)
	}
	return out, err
}

func (l *Listener) handle(ctx context.Context, in any, info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler) (out any, err error) {
	defer func() {
		if r := recover(); r != nil {
			l.Log.Error(nil, "request of Cluster Autoscaler panicked", "method", info.FullMethod, "panic", r, "stack",
				string(debug.Stack()))
			out, err = nil, status.Error(codes.Internal, "internal error; see the log of the controller")
		}
	}()
	// A connection may outlive the certificate with which it was established.
	leaf, err := peerCertificate(ctx)
	if err != nil {
		return nil, err
	}
	if l.Clock.Now().After(leaf.NotAfter) {
		return nil, reject(codes.Unauthenticated, "the client certificate expired at %s",
			leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return next(ctx, in)
}

// changeLogValues returns the log values of a request that changes a group; nil for a read.
func changeLogValues(in any) []any {
	switch in := in.(type) {
	case *externalgrpc.NodeGroupIncreaseSizeRequest:
		return []any{"nodeGroup", truncateName(in.GetId()), "delta", in.GetDelta()}
	case *externalgrpc.NodeGroupDecreaseTargetSizeRequest:
		return []any{"nodeGroup", truncateName(in.GetId()), "delta", in.GetDelta()}
	case *externalgrpc.NodeGroupDeleteNodesRequest:
		var names []string
		for _, n := range in.GetNodes()[:min(len(in.GetNodes()), 10)] {
			names = append(names, truncateName(n.GetName()))
		}
		return []any{"nodeGroup", truncateName(in.GetId()), "nodes", names, "count", len(in.GetNodes())}
	}
	return nil
}

func (l *Listener) logChange(ctx context.Context, method string, requestValues []any, duration time.Duration,
	err error) {
	key, _ := Caller(ctx)
	values := append([]any{"autoscaler", key.String(), "method", method, "code", status.Code(err).String(), "took",
		duration.String()}, requestValues...)
	rejected := (*RejectedError)(nil)
	switch {
	case err == nil:
		l.Log.Info("recorded a change requested by Cluster Autoscaler", values...)
	case errors.As(err, &rejected):
		l.Log.Info("rejected a change requested by Cluster Autoscaler", append(values, "why", rejected.Message)...)
	default:
		l.Log.Error(err, "failed to record a change requested by Cluster Autoscaler", values...)
	}
}
