package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/agent/agentpb"
	agentclient "github.com/ksctl/gitops/internal/agent/client"
)

// MaxWorkers is the maximum number of workers of a cluster.
const MaxWorkers = 10_000

// maxScaleAge is the maximum age of a deletion that is sent to ksctl's own agent: machines that
// join later may be in use.
const maxScaleAge = time.Minute

// maxBeginAge is the maximum age of a deletion that is sent to an agent that serves Workers:
// minSize may have been raised since, and the machine may be in use again.
const maxBeginAge = 5 * time.Minute

// task is the operation that the agent has to carry out; op is nil if there is none.
type task struct {
	op *clusterv1.ScaleOperation
	// resumed is true if the operation may have been sent to the agent before.
	resumed bool
	now     time.Time
}

// agentSession is a session with an agent. It is not safe for concurrent use.
type agentSession struct {
	hash [sha256.Size]byte
	conn Conn
	// servesWorkers is true once the agent has listed workers. ksctl's own agent never does.
	servesWorkers bool
	// finished is the result of the last operation of ksctl's own agent, which knows no operation
	// IDs.
	finished OperationStatus
}

func (t *agentSession) close() {
	if t.conn != nil {
		t.conn.Close()
		t.conn = nil
	}
}

// poll reads the workers and the status of the operation from the agent once. If the agent does not
// know the operation, poll sends it. If the agent cannot be read, poll returns the previous report
// with the error.
func (t *agentSession) poll(ctx context.Context, cfg Config, do task, last Report) Report {
	requested := do.op
	withError := func(err error) Report {
		last.Err = err
		return last
	}
	if t.conn == nil || t.hash != cfg.Hash {
		t.close()
		conn, err := cfg.Dial()
		if err != nil {
			return withError(err)
		}
		t.conn, t.hash, t.servesWorkers = conn, cfg.Hash, false
	}
	listCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	listed, err := t.conn.List(listCtx, cfg.Cluster)
	switch {
	case errors.Is(err, agentclient.ErrNoWorkers) && !t.servesWorkers:
		return t.scaleOnce(ctx, cfg, do)
	case err != nil:
		return withError(err)
	}
	t.servesWorkers = true
	for _, w := range listed.Workers {
		if w.Index >= MaxWorkers {
			return withError(fmt.Errorf("the agent lists a worker with index %d: the index must be less than %d",
				w.Index, MaxWorkers))
		}
	}
	report := Report{listed: true, Workers: listed.Workers, Operation: toOperationStatus(listed.Operation)}
	if requested == nil || report.Operation.ID == requested.ID {
		return report
	}
	if requested.Kind != clusterv1.OperationScaleUp && do.now.After(requested.StartedAt.Add(maxBeginAge)) {
		report.Operation = expired(requested, last.Err)
		return report
	}
	beginCtx, cancelBegin := context.WithTimeout(ctx, callTimeout)
	defer cancelBegin()
	op, err := t.conn.Begin(beginCtx, &agentpb.BeginRequest{Cluster: cfg.Cluster, Id: requested.ID,
		Desired: uint32(requested.DesiredWorkers), Current: uint32(requested.From), Size: requested.NodeSize})
	switch {
	case isRejected(err):
		report.Operation = OperationStatus{ID: requested.ID, Phase: Failed, Code: clusterv1.CodeFailed,
			Message: err.Error()}
	case err != nil:
		report.Err = err
	default:
		report.Operation = toOperationStatus(&op)
	}
	return report
}

// scaleOnce lets ksctl's own agent carry out an operation, once for each operation ID.
func (t *agentSession) scaleOnce(ctx context.Context, cfg Config, do task) Report {
	if do.op == nil {
		return Report{KsctlAgent: true}
	}
	if t.finished.ID != do.op.ID {
		t.finished = t.scale(ctx, cfg, do)
	}
	return Report{KsctlAgent: true, Operation: t.finished}
}

// scale calls Scale of ksctl's own agent, which returns when the operation is done, and returns the
// result of the operation.
func (t *agentSession) scale(ctx context.Context, cfg Config, do task) OperationStatus {
	failed := func(code, message string) OperationStatus {
		return OperationStatus{ID: do.op.ID, Phase: Failed, Code: code, Message: message}
	}
	up := do.op.Kind == clusterv1.OperationScaleUp
	switch {
	case !up && do.resumed:
		return failed(clusterv1.CodeNoAnswer,
			"the controller was restarted during the operation, and it does not send a deletion twice")
	case !up && do.now.After(do.op.StartedAt.Add(maxScaleAge)):
		return expired(do.op, nil)
	}
	scaleCtx, cancel := context.WithTimeout(ctx, cfg.ScaleTimeout)
	defer cancel()
	err := t.conn.Scale(scaleCtx, up, uint32(do.op.DesiredWorkers), do.op.NodeSize)
	switch {
	case err == nil:
		return OperationStatus{ID: do.op.ID, Phase: Succeeded}
	case do.resumed || !isAgentError(err): // an earlier call may still be in progress
		return failed(clusterv1.CodeNoAnswer, err.Error())
	}
	return failed(clusterv1.CodeFailed, err.Error())
}

// expired returns the result of a deletion that the agent did not begin in time. cause is the last
// error of the agent; nil if there is none.
func expired(op *clusterv1.ScaleOperation, cause error) OperationStatus {
	w := OperationStatus{ID: op.ID, Phase: Failed, Code: clusterv1.CodeFailed,
		Message: "the request expired because the agent did not begin the operation in time"}
	if cause != nil {
		w.Message += ": " + cause.Error()
	}
	return w
}

// isAgentError reports whether the agent itself returned the error.
func isAgentError(err error) bool {
	var agentErr *agentclient.Error
	return errors.As(err, &agentErr) && agentErr.Answered
}

// isRejected reports whether the agent will never begin the operation: its number of workers
// differs from the one in the request, or it supports no such size or number of machines.
func isRejected(err error) bool {
	var agentErr *agentclient.Error
	return errors.As(err, &agentErr) && agentErr.Answered &&
		(agentErr.Code == codes.Aborted || agentErr.Code == codes.InvalidArgument || agentErr.Code == codes.OutOfRange)
}

// toOperationStatus converts the status of the operation that the agent began last.
func toOperationStatus(op *agentclient.Operation) OperationStatus {
	if op == nil {
		return OperationStatus{}
	}
	w := OperationStatus{ID: op.ID, Message: op.Message}
	switch op.State {
	case agentpb.Operation_SUCCEEDED:
		w.Phase = Succeeded
	case agentpb.Operation_FAILED:
		w.Phase, w.Code = Failed, cmp.Or(failureCodes[op.Failure], clusterv1.CodeFailed)
	default:
		w.Phase = Running
	}
	return w
}

// failureCodes maps the failures of an agent that serves Workers to failure codes.
var failureCodes = map[agentpb.Operation_Failure]string{
	agentpb.Operation_OUT_OF_RESOURCES: clusterv1.CodeOutOfResources, agentpb.Operation_DRAIN: clusterv1.CodeDrain}
