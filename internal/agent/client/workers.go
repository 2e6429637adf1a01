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

// Bounds of what an agent lists.
const (
	maxWorkers = 10_000
	maxName    = 253 // bytes of a name, as of a Node
)

// Worker is a machine.
type Worker struct {
	// Index is its place in the array of workers, from 0.
	Index uint32
	// Name of the machine, its Size in the cloud's words, and its Node, "" if that is not known.
	Name, Size, Node string
}

// Phase is how an operation stands.
type Phase string

// Phases.
const (
	// PhaseUnknown is one that is not known here.
	PhaseUnknown   Phase = ""
	PhaseRunning   Phase = "Running"
	PhaseSucceeded Phase = "Succeeded"
	PhaseFailed    Phase = "Failed"
)

// Failure is why an operation failed.
type Failure string

// Failures.
const (
	// NoFailure is that of an operation that did not fail.
	NoFailure Failure = ""
	// OutOfResources: the cloud has no more machines of that size, or the account may have none.
	OutOfResources Failure = "OutOfResources"
	// DrainFailure: a disruption budget keeps a worker.
	DrainFailure Failure = "Drain"
	// OtherFailure is everything else.
	OtherFailure Failure = "Other"
)

// Operation changes the number of workers.
type Operation struct {
	// ID that it was begun with.
	ID    string
	Phase Phase
	// Desired number of workers, all together, and the Size of those that are made.
	Desired uint32
	Size    string
	Failure Failure
	// Message is one line of the agent's, of at most 300 bytes.
	Message string
	// Started and Ended are by the agent's clock; zero: not yet.
	Started, Ended time.Time
}

// State of a cluster's workers.
type State struct {
	// Workers by their index.
	Workers []Worker
	// Operation that was begun last; nil: none was.
	Operation *Operation
}

// BeginRequest says which operation is to begin.
type BeginRequest struct {
	// Cluster; "" is the only one that the agent has.
	Cluster string
	// ID of the operation: 1 to 64 letters, digits, dots and dashes.
	ID string
	// Desired number of workers, and the Current one as the caller knows it.
	Desired, Current uint32
	// Size of the machines that are made.
	Size string
}

// List says which workers there are, and how the last operation stands. Errors are
// *NoWorkersError, *AddressError and *Error.
func (c *Client) List(ctx context.Context, cluster string) (State, error) {
	var res *agentpb.ListResponse
	err := c.call(ctx, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		res, err = agentpb.NewWorkersClient(c.conn).List(ctx, &agentpb.ListRequest{Cluster: cluster}, o...)
		return err
	})
	if said, ok := errors.AsType[*Error](err); ok && said.Code == codes.Unimplemented {
		return State{}, &NoWorkersError{}
	}
	if err != nil {
		return State{}, err
	}
	workers, err := workersOf(res.GetWorkers())
	if err != nil {
		return State{}, err
	}
	out := State{Workers: workers}
	if op := res.GetOperation(); op != nil {
		known := c.operationOf(op)
		out.Operation = &known
	}
	return out, nil
}

// Begin begins an operation, or says how it stands if the agent knows its id. The Code of an
// *Error is FailedPrecondition while another is at work, Aborted where the number of workers
// is another than the caller's. Errors are *AddressError and *Error.
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
		return Operation{}, odd("it answers with another operation than was asked for")
	default:
		return c.operationOf(op), nil
	}
}

// odd is an answer that no agent gives that keeps to the protocol.
func odd(format string, args ...any) error {
	return &Error{Code: codes.DataLoss, Message: fmt.Sprintf(format, args...), Answered: true}
}

// workersOf takes what an agent lists, sorted. An array has each place once.
func workersOf(list []*agentpb.Worker) ([]Worker, error) {
	if len(list) > maxWorkers {
		return nil, odd("it lists %d workers, and at most %d are taken", len(list), maxWorkers)
	}
	out := make([]Worker, 0, len(list))
	for _, w := range list {
		out = append(out, Worker{Index: w.GetIndex(), Name: oneLine(w.GetName(), maxName), Size: oneLine(w.GetSize(), maxName), Node: oneLine(w.GetNode(), maxName)})
	}
	slices.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.Index, b.Index) })
	for i := range out {
		if i > 0 && out[i].Index == out[i-1].Index {
			return nil, odd("it lists two workers with the index %d", out[i].Index)
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

// operationOf takes what an agent says of an operation. One that failed has a failure, also
// where the agent has none, or one that is not known here.
func (c *Client) operationOf(op *agentpb.Operation) Operation {
	out := Operation{ID: oneLine(op.GetId(), maxName), Phase: phases[op.GetState()], Desired: op.GetDesired(), Size: oneLine(op.GetSize(), maxName),
		Message: c.words(op.GetMessage()), Started: timeOf(op.GetStarted()), Ended: timeOf(op.GetEnded())}
	if out.Phase == PhaseFailed {
		out.Failure = cmp.Or(failures[op.GetFailure()], OtherFailure)
	}
	return out
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}
