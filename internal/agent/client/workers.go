package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// Limits of the responses of an agent.
const (
	maxWorkers   = 10_000
	maxNameBytes = 253 // bytes: the maximum length of a Node's name
)

// Worker is a worker machine of a cluster.
type Worker struct {
	// Index is the index in the cluster's array of workers, from 0.
	Index uint32
	// Size is the instance type of the machine, and Node the name of its Node; "" if the Node is
	// unknown.
	Size, Node string
}

// Operation changes the number of workers.
type Operation struct {
	// ID is the ID of the BeginRequest.
	ID string
	// State and Failure may have values that this version does not know.
	State   agentpb.Operation_State
	Failure agentpb.Operation_Failure
	// Message is one line of the agent, of at most 300 bytes.
	Message string
}

// State is the state of a cluster's workers.
type State struct {
	// Workers are sorted by their index.
	Workers []Worker
	// Operation is the latest operation; nil if there was none.
	Operation *Operation
}

// List returns the workers and the state of the latest operation. Errors are ErrNoWorkers,
// *AddressError and *Error.
func (c *Client) List(ctx context.Context, cluster string) (State, error) {
	res, err := call(ctx, c, agentpb.NewWorkersClient(c.conn).List, &agentpb.ListRequest{Cluster: cluster})
	if callErr, ok := errors.AsType[*Error](err); ok && callErr.Code == codes.Unimplemented {
		return State{}, ErrNoWorkers
	}
	if err != nil {
		return State{}, err
	}
	workers, err := toWorkers(res.GetWorkers())
	if err != nil {
		return State{}, err
	}
	out := State{Workers: workers}
	if op := res.GetOperation(); op != nil {
		out.Operation = new(c.toOperation(op))
	}
	return out, nil
}

// Begin starts an operation and returns its state. If the agent already knows the ID, Begin starts
// nothing. The Code of an *Error is FailedPrecondition while another operation runs, and Aborted if
// the number of workers differs from req.Current. Errors are *AddressError and *Error.
func (c *Client) Begin(ctx context.Context, req *agentpb.BeginRequest) (Operation, error) {
	res, err := call(ctx, c, agentpb.NewWorkersClient(c.conn).Begin, req)
	switch op := res.GetOperation(); {
	case err != nil:
		return Operation{}, err
	case op.GetId() != req.GetId():
		return Operation{}, protocolError("the response holds another operation than the requested one")
	default:
		return c.toOperation(op), nil
	}
}

// protocolError returns the error of a response that violates the protocol.
func protocolError(format string, args ...any) error {
	return &Error{Code: codes.DataLoss, Message: fmt.Sprintf(format, args...), Answered: true}
}

// toWorkers converts a list of workers and sorts it by index. Each index must occur once.
func toWorkers(list []*agentpb.Worker) ([]Worker, error) {
	if len(list) > maxWorkers {
		return nil, protocolError("the list has %d workers; the maximum is %d", len(list), maxWorkers)
	}
	out := make([]Worker, 0, len(list))
	for _, w := range list {
		out = append(out, Worker{Index: w.GetIndex(),
			Size: oneLine(w.GetSize(), maxNameBytes), Node: oneLine(w.GetNode(), maxNameBytes)})
	}
	slices.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.Index, b.Index) })
	for i := 1; i < len(out); i++ {
		if out[i].Index == out[i-1].Index {
			return nil, protocolError("the list has two workers with index %d", out[i].Index)
		}
	}
	return out, nil
}

func (c *Client) toOperation(op *agentpb.Operation) Operation {
	return Operation{ID: oneLine(op.GetId(), maxNameBytes), State: op.GetState(), Failure: op.GetFailure(),
		Message: c.sanitize(op.GetMessage())}
}
