package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/state"
)

// Limits of the connection to an agent.
const (
	// MaxRequest is the maximum size of a request in bytes. ksctl's agent accepts no larger one: it
	// is gRPC's default.
	MaxRequest = 4 << 20
	// MaxResponse is the maximum size of a response in bytes.
	MaxResponse = 1 << 20
	// maxHeaderBytes limits response headers, which carry the agent's error message.
	maxHeaderBytes = 64 << 10
	// A connection attempt fails after connectTimeout. The next one starts after at most
	// maxReconnectDelay.
	connectTimeout    = 10 * time.Second
	maxReconnectDelay = 10 * time.Second
	// A call may run for minutes without traffic, so keepalive pings detect a dead agent. They are
	// sent no more often than gRPC servers allow by default.
	keepaliveTime    = 6 * time.Minute
	keepaliveTimeout = 20 * time.Second
)

// Client calls one agent. It is safe for concurrent use.
type Client struct {
	conn      *grpc.ClientConn
	transport *trackedTransport
	token     string
}

// Dial returns a client of the agent at an endpoint. secret is the data of the endpoint's Secret.
// The client connects on its first call. Errors are *SecretError and *AddressError.
func Dial(endpoint appsv1.AgentEndpoint, secret map[string][]byte) (*Client, error) {
	transport, token, err := credentialsFor(&endpoint, secret)
	if err != nil {
		return nil, err
	}
	l := &trackedTransport{TransportCredentials: transport, dialer: artifact.NewDialer()}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(l),
		// A custom dialer also ignores the proxy of the environment.
		grpc.WithContextDialer(l.dial), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxResponse)),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectTimeout,
			Backoff: backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: maxReconnectDelay}}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithUserAgent("ksctl-gitops"),
	}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(tokenCredentials(token)))
	}
	// passthrough leaves name resolution to the dialer, which resolves the host name for each
	// connection and checks every address.
	conn, err := grpc.NewClient("passthrough:///"+endpoint.Address, options...)
	if err != nil {
		return nil, &AddressError{"gRPC does not accept it"}
	}
	return &Client{conn: conn, transport: l, token: token}, nil
}

// Close closes the connection. Pending calls fail with Canceled.
func (c *Client) Close() { _ = c.conn.Close() }

// Import imports an export into the state store of the agent's ksctl. It overwrites the states of
// the same clusters and the credentials of the same clouds. Errors of the call are *AddressError
// and *Error; the message of an *Error quotes no secret of the export.
func (c *Client) Import(ctx context.Context, export []byte) error {
	req := &agentpb.ReqStore{Operation: agentpb.StorageOperation_IMPORT, Data: export}
	if n := proto.Size(req); n > MaxRequest {
		return fmt.Errorf("request of %d bytes exceeds the agent's limit of %d bytes: nothing was sent", n, MaxRequest)
	}
	_, err := call(ctx, c, agentpb.NewKsctlAgentClient(c.conn).Storage, req)
	if callErr, ok := errors.AsType[*Error](err); ok && callErr.Answered && state.LeaksSecret(callErr.Message, export) {
		callErr.Message = "the message is omitted because it quotes secrets of the request"
	}
	return err
}

// Scale sets the number of workers through ksctl's own agent. size is the instance type of new
// workers. Scale returns when the workers are added or removed. Any error means that scaling
// failed, even Unimplemented. Errors are *AddressError and *Error.
func (c *Client) Scale(ctx context.Context, up bool, desired uint32, size string) error {
	req := &agentpb.ReqScale{Operation: agentpb.ScaleOperation_SCALE_DOWN, DesiredNoOfWP: desired, NodeSizeOfWP: size}
	if up {
		req.Operation = agentpb.ScaleOperation_SCALE_UP
	}
	res, err := call(ctx, c, agentpb.NewKsctlAgentClient(c.conn).Scale, req)
	if err == nil && !res.GetIsUpdated() {
		return &Error{Code: codes.Unknown, Message: "no worker was added or removed", Answered: true}
	}
	return err
}

// call calls a method and converts its error to an *Error or an *AddressError.
func call[Req, Res any](ctx context.Context, c *Client,
	method func(context.Context, Req, ...grpc.CallOption) (Res, error), req Req) (Res, error) {
	var remote peer.Peer
	res, err := method(ctx, req, grpc.Peer(&remote))
	if err == nil {
		return res, nil
	}
	s, failure := status.Convert(err), c.transport.lastFailure()
	_, hasDeadline := ctx.Deadline() // gRPC sends the deadline along, so the agent may report DeadlineExceeded first
	switch code := s.Code(); {
	case code == codes.Canceled:
		return res, &Error{Code: code, Message: "the call was canceled"}
	case code == codes.DeadlineExceeded && hasDeadline && failure == nil:
		return res, &Error{Code: code, Message: "it does not answer in time"}
	case code == codes.DeadlineExceeded && hasDeadline, code == codes.Unavailable &&
		(remote.Addr == nil || failure != nil):
		return res, connectionError(failure)
	}
	return res, &Error{Code: s.Code(), Message: c.sanitize(s.Message()), Answered: true}
}

// sanitize shortens a message of the agent to one line and removes the token from it.
func (c *Client) sanitize(message string) string {
	if c.token != "" {
		message = strings.ReplaceAll(message, c.token, "…")
	}
	return oneLine(message, maxMessageBytes)
}
