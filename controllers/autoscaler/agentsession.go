package autoscaler

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

// maxWorkers is the maximum number of workers of a cluster.
const maxWorkers = 10_000

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
	finished operationStatus
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
func (t *agentSession) poll(ctx context.Context, cfg sessionConfig, do task, last agentReport) agentReport {
	requested := do.op
	withError := func(err error) agentReport {
		last.err = err
		return last
	}
	if t.conn == nil || t.hash != cfg.hash {
		t.close()
		conn, err := cfg.dial()
		if err != nil {
			return withError(err)
		}
		t.conn, t.hash, t.servesWorkers = conn, cfg.hash, false
	}
	listCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	listed, err := t.conn.List(listCtx, cfg.cluster)
	switch {
	case errors.Is(err, agentclient.ErrNoWorkers) && !t.servesWorkers:
		return t.scaleOnce(ctx, cfg, do)
	case err != nil:
		return withError(err)
	}
	t.servesWorkers = true
	for _, w := range listed.Workers {
		if w.Index >= maxWorkers {
			return withError(fmt.Errorf("the agent lists a worker with index %d: the index must be less than %d", w.Index, maxWorkers))
		}
	}
	report := agentReport{listed: true, workers: listed.Workers, operation: toOperationStatus(listed.Operation)}
	if requested == nil || report.operation.id == requested.ID {
		return report
	}
	if requested.Kind != clusterv1.OperationScaleUp && do.now.After(requested.StartedAt.Add(maxBeginAge)) {
		report.operation = expired(requested, last.err)
		return report
	}
	beginCtx, cancelBegin := context.WithTimeout(ctx, callTimeout)
	defer cancelBegin()
	op, err := t.conn.Begin(beginCtx, &agentpb.BeginRequest{Cluster: cfg.cluster, Id: requested.ID, Desired: uint32(requested.DesiredWorkers), Current: uint32(requested.From), Size: requested.NodeSize})
	switch {
	case isRejected(err):
		report.operation = operationStatus{id: requested.ID, phase: phaseFailed, code: clusterv1.CodeFailed, message: err.Error()}
	case err != nil:
		report.err = err
	default:
		report.operation = toOperationStatus(&op)
	}
	return report
}

// scaleOnce lets ksctl's own agent carry out an operation, once for each operation ID.
func (t *agentSession) scaleOnce(ctx context.Context, cfg sessionConfig, do task) agentReport {
	if do.op == nil {
		return agentReport{ksctlAgent: true}
	}
	if t.finished.id != do.op.ID {
		t.finished = t.scale(ctx, cfg, do)
	}
	return agentReport{ksctlAgent: true, operation: t.finished}
}

// scale calls Scale of ksctl's own agent, which returns when the operation is done, and returns the
// result of the operation.
func (t *agentSession) scale(ctx context.Context, cfg sessionConfig, do task) operationStatus {
	failed := func(code, message string) operationStatus {
		return operationStatus{id: do.op.ID, phase: phaseFailed, code: code, message: message}
	}
	up := do.op.Kind == clusterv1.OperationScaleUp
	switch {
	case !up && do.resumed:
		return failed(clusterv1.CodeNoAnswer, "the controller was restarted during the operation, and it does not send a deletion twice")
	case !up && do.now.After(do.op.StartedAt.Add(maxScaleAge)):
		return expired(do.op, nil)
	}
	scaleCtx, cancel := context.WithTimeout(ctx, cfg.scaleTimeout)
	defer cancel()
	err := t.conn.Scale(scaleCtx, up, uint32(do.op.DesiredWorkers), do.op.NodeSize)
	switch {
	case err == nil:
		return operationStatus{id: do.op.ID, phase: phaseSucceeded}
	case do.resumed || !isAgentError(err): // an earlier call may still be in progress
		return failed(clusterv1.CodeNoAnswer, err.Error())
	}
	return failed(clusterv1.CodeFailed, err.Error())
}

// expired returns the result of a deletion that the agent did not begin in time. cause is the last
// error of the agent; nil if there is none.
func expired(op *clusterv1.ScaleOperation, cause error) operationStatus {
	w := operationStatus{id: op.ID, phase: phaseFailed, code: clusterv1.CodeFailed, message: "the request expired because the agent did not begin the operation in time"}
	if cause != nil {
		w.message += ": " + cause.Error()
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
	return errors.As(err, &agentErr) && agentErr.Answered && (agentErr.Code == codes.Aborted || agentErr.Code == codes.InvalidArgument || agentErr.Code == codes.OutOfRange)
}

// toOperationStatus converts the status of the operation that the agent began last.
func toOperationStatus(op *agentclient.Operation) operationStatus {
	if op == nil {
		return operationStatus{}
	}
	w := operationStatus{id: op.ID, message: op.Message}
	switch op.State {
	case agentpb.Operation_SUCCEEDED:
		w.phase = phaseSucceeded
	case agentpb.Operation_FAILED:
		w.phase, w.code = phaseFailed, cmp.Or(failureCodes[op.Failure], clusterv1.CodeFailed)
	default:
		w.phase = phaseRunning
	}
	return w
}

// failureCodes maps the failures of an agent that serves Workers to failure codes.
var failureCodes = map[agentpb.Operation_Failure]string{agentpb.Operation_OUT_OF_RESOURCES: clusterv1.CodeOutOfResources, agentpb.Operation_DRAIN: clusterv1.CodeDrain}
