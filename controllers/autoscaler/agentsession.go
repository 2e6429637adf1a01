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
	agentclient "github.com/ksctl/gitops/internal/agent/client"
)

// maxWorkers of a cluster.
const maxWorkers = 10_000

// sendWithin is how old a deletion may be that ksctl's own agent is told of: machines that join
// later may be in use.
const sendWithin = time.Minute

// beginWithin is how old a deletion may be that our own agent is told of: minSize may have been
// raised, and the machine be used again.
const beginWithin = 5 * time.Minute

// task is what an agent has to do at a time.
type task struct {
	op *clusterv1.ScaleOperation
	// resumed is true for one that it may have been told before.
	resumed bool
	now     time.Time
}

// talk is a conversation with an agent.
type talk struct {
	id   [sha256.Size]byte
	conn Conn
	// own is true once it was our own agent that answered.
	own bool
	// plainDone has how operations ended that ksctl's own agent was asked for: it knows no ids.
	plainDone map[string]word
}

func (t *talk) close() {
	if t.conn != nil {
		t.conn.Close()
		t.conn = nil
	}
}

// turn asks an agent once: what there is, and how the operation stands. One that it does not
// know it is told of.
func (t *talk) turn(ctx context.Context, q question, do task, before answer) answer {
	asked := do.op
	silent := func(err error) answer {
		before.err = err
		return before
	}
	if t.conn == nil || t.id != q.id {
		t.close()
		conn, err := q.open()
		if err != nil {
			return silent(err)
		}
		t.conn, t.id, t.own = conn, q.id, false
	}
	within, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	state, err := t.conn.List(within, q.cluster)
	var plain *agentclient.NoWorkersError
	switch {
	case errors.As(err, &plain) && !t.own:
		return t.plain(ctx, q, do)
	case err != nil:
		return silent(err)
	}
	t.own = true
	for _, w := range state.Workers {
		if w.Index >= maxWorkers {
			return silent(fmt.Errorf("the agent lists a worker with the index %d, and at most %d are taken", w.Index, maxWorkers))
		}
	}
	said := answer{listed: true, workers: state.Workers, word: wordOf(state.Operation)}
	if asked == nil || said.word.id == asked.ID {
		return said
	}
	if asked.Kind != clusterv1.OperationScaleUp && do.now.After(asked.StartedAt.Add(beginWithin)) {
		said.word = unreached(asked, before.err)
		return said
	}
	beginning, cancelBegin := context.WithTimeout(ctx, askWithin)
	defer cancelBegin()
	op, err := t.conn.Begin(beginning, agentclient.BeginRequest{Cluster: q.cluster, ID: asked.ID, Desired: uint32(asked.DesiredWorkers), Current: uint32(asked.From), Size: asked.NodeSize})
	switch {
	case isRefused(err):
		said.word = word{id: asked.ID, state: agentFailed, code: CodeFailed, message: err.Error()}
	case err != nil:
		said.err = err
	default:
		said.word = wordOf(&op)
	}
	return said
}

// plain has ksctl's own agent carry out an operation. It answers when that is done.
func (t *talk) plain(ctx context.Context, q question, do task) answer {
	said := answer{plain: true}
	if do.op == nil {
		return said
	}
	if done, ok := t.plainDone[do.op.ID]; ok {
		said.word = done
		return said
	}
	said.word = t.scale(ctx, q, do)
	clear(t.plainDone) // one at a time
	t.plainDone[do.op.ID] = said.word
	return said
}

// scale is how it went.
func (t *talk) scale(ctx context.Context, q question, do task) word {
	failed := func(code, message string) word {
		return word{id: do.op.ID, state: agentFailed, code: code, message: message}
	}
	up := do.op.Kind == clusterv1.OperationScaleUp
	switch {
	case !up && do.resumed:
		return failed(CodeNoAnswer, "the controller started anew meanwhile, and does not ask for deletions twice")
	case !up && do.now.After(do.op.StartedAt.Add(sendWithin)):
		return unreached(do.op, nil)
	}
	within, cancel := context.WithTimeout(ctx, q.within)
	defer cancel()
	err := t.conn.Scale(within, up, uint32(do.op.DesiredWorkers), do.op.NodeSize)
	switch {
	case err == nil:
		return word{id: do.op.ID, state: agentSucceeded}
	case do.resumed || !isAnswered(err): // what it was told before may still be at work
		return failed(CodeNoAnswer, err.Error())
	}
	return failed(CodeFailed, err.Error())
}

// unreached is how a deletion ended that an agent did not begin; why is what it said last.
func unreached(op *clusterv1.ScaleOperation, why error) word {
	w := word{id: op.ID, state: agentFailed, code: CodeFailed, message: "the agent did not begin with it in time, and is not asked for it any more"}
	if why != nil {
		w.message += ": " + why.Error()
	}
	return w
}

// isAnswered is true where the agent itself said so.
func isAnswered(err error) bool {
	var said *agentclient.Error
	return errors.As(err, &said) && said.Answered
}

// isRefused is true where an agent will never begin an operation: it has other workers than it was
// told, or makes no such machines, or not so many.
func isRefused(err error) bool {
	var said *agentclient.Error
	return errors.As(err, &said) && said.Answered && (said.Code == codes.Aborted || said.Code == codes.InvalidArgument || said.Code == codes.OutOfRange)
}

// wordOf is what an agent says of the operation that it began last.
func wordOf(op *agentclient.Operation) word {
	if op == nil {
		return word{}
	}
	w := word{id: op.ID, message: op.Message}
	switch op.Phase {
	case agentclient.PhaseSucceeded:
		w.state = agentSucceeded
	case agentclient.PhaseFailed:
		w.state, w.code = agentFailed, cmp.Or(failureCodes[op.Failure], CodeFailed)
	default:
		w.state = agentRunning
	}
	return w
}

// failureCodes of our own agent.
var failureCodes = map[agentclient.Failure]string{agentclient.OutOfResources: CodeOutOfResources, agentclient.DrainFailure: CodeDrain, agentclient.OtherFailure: CodeFailed}
