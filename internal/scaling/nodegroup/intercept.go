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

// within is how long any answer may take. Cluster Autoscaler waits for 5 seconds by default.
const within = 10 * time.Second

// answer stands around each request: it is counted, bounded, and no panic ends the process.
func (l *Listener) answer(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	start := l.Clock.Now()
	out, err := l.guarded(ctx, in, info, next)
	method, code, lasted := path.Base(info.FullMethod), status.Code(err), l.Clock.Since(start)
	l.Metrics.NodeGroupRequest(method, code.String(), lasted)
	if asked := described(in); asked != nil {
		l.logWrite(ctx, method, asked, lasted, err)
	}
	return out, err
}

func (l *Listener) guarded(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
	defer func() {
		if r := recover(); r != nil {
			l.Log.Error(nil, "a request of Cluster Autoscaler could not be answered", "method", info.FullMethod, "panic", r, "stack", string(debug.Stack()))
			out, err = nil, status.Error(codes.Internal, "the controller failed; its log says how")
		}
	}()
	// A connection may outlive the certificate that it was made with.
	leaf, err := certificateOf(ctx)
	if err != nil {
		return nil, err
	}
	if l.Clock.Now().After(leaf.NotAfter) {
		return nil, refuse(codes.Unauthenticated, "the client certificate expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return next(ctx, in)
}

// described says what a request is to change, for a log; nil: it changes nothing.
func described(in any) []any {
	switch in := in.(type) {
	case *externalgrpc.NodeGroupIncreaseSizeRequest:
		return []any{"nodeGroup", brief(in.GetId()), "delta", in.GetDelta()}
	case *externalgrpc.NodeGroupDecreaseTargetSizeRequest:
		return []any{"nodeGroup", brief(in.GetId()), "delta", in.GetDelta()}
	case *externalgrpc.NodeGroupDeleteNodesRequest:
		var names []string
		for _, n := range in.GetNodes()[:min(len(in.GetNodes()), 10)] {
			names = append(names, brief(n.GetName()))
		}
		return []any{"nodeGroup", brief(in.GetId()), "nodes", names, "count", len(in.GetNodes())}
	}
	return nil
}

func (l *Listener) logWrite(ctx context.Context, method string, asked []any, lasted time.Duration, err error) {
	key, _ := Caller(ctx)
	values := append([]any{"autoscaler", key.String(), "method", method, "code", status.Code(err).String(), "took", lasted.String()}, asked...)
	refusal := (*Refusal)(nil)
	switch {
	case err == nil:
		l.Log.Info("Cluster Autoscaler's wish was taken down", values...)
	case errors.As(err, &refusal):
		l.Log.Info("Cluster Autoscaler's wish was refused", append(values, "why", refusal.Message)...)
	default:
		l.Log.Error(err, "Cluster Autoscaler's wish could not be taken down", values...)
	}
}
