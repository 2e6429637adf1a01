package client

import (
	"context"
	"errors"
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
	"github.com/ksctl/gitops/stacks/state"
)

// Bounds of what is spoken with an agent.
const (
	// MaxRequest is the largest message that is sent, in bytes: ksctl's agent takes no larger
	// one (gRPC's default).
	MaxRequest = 4 << 20
	// MaxAnswer is the largest that is taken.
	MaxAnswer = 1 << 20
	// maxHeaders bounds the words of an agent, which come in a header.
	maxHeaders = 64 << 10
	// A connection has to be there within connectTimeout, or is tried again, after maxPause at most.
	connectTimeout = 10 * time.Second
	maxPause       = 10 * time.Second
	// An agent at work for minutes is asked for a sign of life, no more often than servers allow.
	pingAfter   = 6 * time.Minute
	pingTimeout = 20 * time.Second
)

// Client speaks with one agent. It may be used by several goroutines at once.
type Client struct {
	conn  *grpc.ClientConn
	line  *line
	token string
}

// Dial prepares to speak with an agent, with what its Secret holds; nobody is connected to
// before the first call. Errors are *SecretError and *AddressError.
func Dial(endpoint appsv1.AgentEndpoint, secret map[string][]byte) (*Client, error) {
	a, err := accessOf(&endpoint, secret)
	if err != nil {
		return nil, err
	}
	l := newLine(a.transport)
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(l),
		// A dialer of our own also keeps the proxy of the environment out.
		grpc.WithContextDialer(l.dial), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxAnswer)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectTimeout,
			Backoff: backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause}}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithUserAgent("ksctl-gitops"),
	}
	if a.token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(a.token)))
	}
	// The name is looked up at each connection, and each of its addresses looked at.
	conn, err := grpc.NewClient("passthrough:///"+endpoint.Address, options...)
	if err != nil {
		return nil, &AddressError{"no connection can be made to it"}
	}
	return &Client{conn: conn, line: l, token: a.token}, nil
}

// Close ends the connection. Calls that wait for an answer end with Canceled.
func (c *Client) Close() { _ = c.conn.Close() }

// Import has the agent bring an export into ksctl's store, over what that has of the same
// clusters and clouds. Errors are *TooLargeError, *AddressError and *Error, whose message
// quotes no secret of the export.
func (c *Client) Import(ctx context.Context, export []byte) error {
	req := &agentpb.ReqStore{Operation: agentpb.StorageOperation_IMPORT, Data: export}
	if n := proto.Size(req); n > MaxRequest {
		return &TooLargeError{Bytes: n, Most: MaxRequest}
	}
	err := c.call(ctx, func(ctx context.Context, o ...grpc.CallOption) error {
		_, err := agentpb.NewKsctlAgentClient(c.conn).Storage(ctx, req, o...)
		return err
	})
	if said, ok := errors.AsType[*Error](err); ok && said.Answered && state.Quotes(said.Message, export) {
		said.Message = "its words are left out, for they quote secrets of what was sent"
	}
	return err
}

// Scale has ksctl's agent add or remove workers until there are so many, the new ones of a
// size in the cloud's words. It returns when that is done. Every error of it, Unimplemented
// too, is a failure. Errors are *AddressError and *Error.
func (c *Client) Scale(ctx context.Context, up bool, desired uint32, size string) error {
	req := &agentpb.ReqScale{Operation: agentpb.ScaleOperation_SCALE_DOWN, DesiredNoOfWP: desired, NodeSizeOfWP: size}
	if up {
		req.Operation = agentpb.ScaleOperation_SCALE_UP
	}
	var res *agentpb.ResScale
	err := c.call(ctx, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		res, err = agentpb.NewKsctlAgentClient(c.conn).Scale(ctx, req, o...)
		return err
	})
	if err == nil && !res.GetIsUpdated() {
		return &Error{Code: codes.Unknown, Message: "it changed nothing", Answered: true}
	}
	return err
}

// call does one call, and makes an error of ours of what it says.
func (c *Client) call(ctx context.Context, do func(ctx context.Context, o ...grpc.CallOption) error) error {
	var from peer.Peer
	err := do(ctx, grpc.Peer(&from))
	if err == nil {
		return nil
	}
	s, failure := status.Convert(err), c.line.failure()
	_, bounded := ctx.Deadline() // which the agent is told, so that it may say first that it is over
	switch code := s.Code(); {
	case code == codes.Canceled:
		return &Error{Code: code, Message: "the call was given up"}
	case code == codes.DeadlineExceeded && bounded && failure == nil:
		return &Error{Code: code, Message: "it does not answer in time"}
	case code == codes.DeadlineExceeded && bounded, code == codes.Unavailable && (from.Addr == nil || failure != nil):
		return explain(failure)
	}
	return &Error{Code: s.Code(), Message: c.words(s.Message()), Answered: true}
}

// words are what is told of those of an agent.
func (c *Client) words(said string) string {
	if c.token != "" {
		said = strings.ReplaceAll(said, c.token, "…")
	}
	return oneLine(said, maxWords)
}
