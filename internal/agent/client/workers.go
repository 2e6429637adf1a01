package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	// Name is the name of the machine, Size its instance type, and Node the name of its Node; ""
	// if the Node is unknown.
	Name, Size, Node string
}

// Phase is the state of an operation.
type Phase string

// Phases.
const (
	// PhaseUnknown is any state that this package does not know.
	PhaseUnknown   Phase = ""
	PhaseRunning   Phase = "Running"
	PhaseSucceeded Phase = "Succeeded"
	PhaseFailed    Phase = "Failed"
)

// Failure is why an operation failed.
type Failure string

// Failures.
const (
	// NoFailure means that the operation did not fail.
	NoFailure Failure = ""
	// OutOfResources means that the cloud provider is out of capacity for the instance type, or
	// that the account's quota is exhausted.
	OutOfResources Failure = "OutOfResources"
	// DrainFailure means that a node could not be drained, for example because of a
	// PodDisruptionBudget.
	DrainFailure Failure = "Drain"
	// OtherFailure is any other failure.
	OtherFailure Failure = "Other"
)

// Operation changes the number of workers.
type Operation struct {
	// ID is the ID of the BeginRequest.
	ID    string
	Phase Phase
	// Desired is the total number of workers, Size the instance type of new ones.
	Desired uint32
	Size    string
	Failure Failure
	// Message is one line of the agent, of at most 300 bytes.
	Message string
	// Started and Ended are times of the agent's clock; zero means not yet.
	Started, Ended time.Time
}

// State is the state of a cluster's workers.
type State struct {
	// Workers are sorted by their index.
	Workers []Worker
	// Operation is the latest operation; nil if there was none.
	Operation *Operation
}

// BeginRequest describes an operation to start.
type BeginRequest struct {
	// Cluster is the name of the cluster; "" selects the only cluster of the agent.
	Cluster string
	// ID is the ID of the operation: 1 to 64 letters, digits, dots and dashes.
	ID string
	// Desired is the desired number of workers, Current the number that the caller observed.
	Desired, Current uint32
	// Size is the instance type of new machines.
	Size string
}

// List returns the workers and the state of the latest operation. Errors are *NoWorkersError,
// *AddressError and *Error.
func (c *Client) List(ctx context.Context, cluster string) (State, error) {
	var res *agentpb.ListResponse
	err := c.call(ctx, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		res, err = agentpb.NewWorkersClient(c.conn).List(ctx, &agentpb.ListRequest{Cluster: cluster}, o...)
		return err
	})
	if callErr, ok := errors.AsType[*Error](err); ok && callErr.Code == codes.Unimplemented {
		return State{}, &NoWorkersError{}
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
		converted := c.toOperation(op)
		out.Operation = &converted
	}
	return out, nil
}

// Begin starts an operation and returns its state. If the agent already knows the ID, Begin starts
// nothing. The Code of an *Error is FailedPrecondition while another operation runs, and Aborted if
// the number of workers differs from r.Current. Errors are *AddressError and *Error.
func (c *Client) Begin(ctx context.Context, r BeginRequest) (Operation, error) {
	req := &agentpb.BeginRequest{Cluster: r.Cluster, Id: r.ID, Desired: r.Desired, Current: r.Current, Size: r.Size}
	var res *agentpb.BeginResponse
	err := c.call(ctx, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		res, err = agentpb.NewWorkersClient(c.conn).Begin(ctx, req, o...)
		return err
	})
	switch op := res.GetOperation(); {
	case err != nil:
		return Operation{}, err
	case op.GetId() != r.ID:
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
		out = append(out, Worker{Index: w.GetIndex(), Name: oneLine(w.GetName(), maxNameBytes), Size: oneLine(w.GetSize(), maxNameBytes), Node: oneLine(w.GetNode(), maxNameBytes)})
	}
	slices.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.Index, b.Index) })
	for i := range out {
		if i > 0 && out[i].Index == out[i-1].Index {
			return nil, protocolError("the list has two workers with index %d", out[i].Index)
		}
	}
	return out, nil
}

var phases = map[agentpb.Operation_State]Phase{
	agentpb.Operation_RUNNING: PhaseRunning, agentpb.Operation_SUCCEEDED: PhaseSucceeded, agentpb.Operation_FAILED: PhaseFailed,
}

var failures = map[agentpb.Operation_Failure]Failure{
	agentpb.Operation_OUT_OF_RESOURCES: OutOfResources, agentpb.Operation_DRAIN: DrainFailure, agentpb.Operation_OTHER: OtherFailure,
}

// toOperation converts an operation. A failed operation always has a Failure: OtherFailure if the
// agent reports none or an unknown one.
func (c *Client) toOperation(op *agentpb.Operation) Operation {
	out := Operation{ID: oneLine(op.GetId(), maxNameBytes), Phase: phases[op.GetState()], Desired: op.GetDesired(), Size: oneLine(op.GetSize(), maxNameBytes),
		Message: c.sanitize(op.GetMessage()), Started: toTime(op.GetStarted()), Ended: toTime(op.GetEnded())}
	if out.Phase == PhaseFailed {
		out.Failure = cmp.Or(failures[op.GetFailure()], OtherFailure)
	}
	return out
}

func toTime(t *timestamppb.Timestamp) time.Time {
	if !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}
