package server

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// Backoff of retries: the delay doubles from initialBackoff to maxBackoff.
const initialBackoff, maxBackoff = time.Second, 15 * time.Second

// clusterScaler runs the operations of one cluster.
type clusterScaler struct {
	Cluster
	opts *Options
	log  logr.Logger

	// beginSlot and listSlot are semaphores of size 1. They serialize the start of operations, and
	// calls of the provisioner to list workers.
	beginSlot, listSlot *semaphore.Weighted
	// wake signals run that an operation was started.
	wake chan struct{}

	mu sync.Mutex
	// loaded is true once the recorded operations are loaded, stopping once no operation may start.
	loaded, stopping bool
	// stored is the document in the store, operations its decoded form.
	stored     []byte
	operations operationLog
	// progress describes the current step of the running operation.
	progress string
	// changed is closed and replaced when operations or stopping change.
	changed chan struct{}
}

func newClusterScaler(c Cluster, o *Options) *clusterScaler {
	return &clusterScaler{Cluster: c, opts: o, log: o.Log.WithValues("cluster", c.Name),
		beginSlot: semaphore.NewWeighted(1), listSlot: semaphore.NewWeighted(1),
		wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// sleep waits for d, or returns the error of ctx when it ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// loadOperations loads the recorded operations. It retries until it succeeds or ctx ends.
func (c *clusterScaler) loadOperations(ctx context.Context) error {
	for wait := initialBackoff; ; wait = min(2*wait, maxBackoff) {
		raw, err := c.opts.Store.Load(ctx, c.Name)
		var b operationLog
		if err == nil {
			b, err = parseOperationLog(raw)
		}
		if err == nil {
			c.update(func() { c.stored, c.operations, c.loaded = raw, b, true })
			return nil
		}
		c.log.Error(err,
			"loading the recorded operations failed; retrying, and starting no operation until it succeeds")
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// update calls f with mu held and notifies the goroutines that wait for changed.
func (c *clusterScaler) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// waitUntil waits until condition, which is called with mu held, returns true. It returns the error
// of ctx when it ends before.
func (c *clusterScaler) waitUntil(ctx context.Context, condition func() bool) error {
	for {
		c.mu.Lock()
		met, changed := condition(), c.changed
		c.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// setProgress sets the description of the running operation's current step.
func (c *clusterScaler) setProgress(progress string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress = progress
}

// loadedOperations returns the operations, or a gRPC status error if they are not loaded or the
// agent is shutting down.
func (c *clusterScaler) loadedOperations() (operationLog, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopping:
		return operationLog{}, status.Error(codes.Unavailable, "the agent is shutting down: try again later")
	case !c.loaded:
		return operationLog{},
			status.Error(codes.Unavailable, "the agent has not loaded its recorded operations yet: try again later")
	}
	return c.operations, nil
}

// operationProto converts a record to its gRPC message. The message of a running operation is its
// progress.
func (c *clusterScaler) operationProto(r record) *agentpb.Operation {
	out := &agentpb.Operation{
		Id: r.ID, Desired: r.Desired, Size: r.Size, Message: r.Message,
		State:   agentpb.Operation_State(agentpb.Operation_State_value[r.State]),
		Failure: agentpb.Operation_Failure(agentpb.Operation_Failure_value[r.Failure]),
		Started: timestamppb.New(r.Started),
	}
	if !r.Ended.IsZero() {
		out.Ended = timestamppb.New(r.Ended)
	}
	if r.running() {
		c.mu.Lock()
		defer c.mu.Unlock()
		out.Message = c.progress
	}
	return out
}

// save writes a record to the store and then updates the operations in memory.
func (c *clusterScaler) save(ctx context.Context, r record) error {
	c.mu.Lock()
	old, b := c.stored, c.operations.withRecord(r)
	c.mu.Unlock()
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := c.opts.Store.Save(ctx, c.Name, old, data); err != nil {
		return err
	}
	c.update(func() { c.stored, c.operations = data, b })
	return nil
}

// saveWithRetries saves a record. It retries until it succeeds or ctx ends.
func (c *clusterScaler) saveWithRetries(ctx context.Context, r record) error {
	for wait := initialBackoff; ; wait = min(2*wait, maxBackoff) {
		err := c.save(ctx, r)
		if err == nil {
			return nil
		}
		c.log.Error(err, "recording the state of an operation failed; retrying", "id", r.ID)
		if errors.Is(err, ErrConflict) {
			if err := c.loadOperations(ctx); err != nil {
				return err
			}
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// listWorkers calls the provisioner to list the workers.
func (c *clusterScaler) listWorkers(ctx context.Context) ([]provisioner.Worker, error) {
	if err := c.listSlot.Acquire(ctx, 1); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer c.listSlot.Release(1)
	ctx, cancel := context.WithTimeout(ctx, c.opts.ListTimeout)
	defer cancel()
	return c.Runner.Run(ctx, provisioner.Request{Operation: provisioner.List, Cluster: c.Cluster.Cluster})
}

// begin starts an operation and returns it. If the ID is known, begin returns the existing
// operation and starts nothing.
func (c *clusterScaler) begin(ctx context.Context, a *agentpb.BeginRequest) (record, error) {
	if err := validateBegin(a, c.opts.MaxWorkers); err != nil {
		return record{}, err
	}
	if err := c.beginSlot.Acquire(ctx, 1); err != nil {
		return record{}, status.FromContextError(err).Err()
	}
	defer c.beginSlot.Release(1)
	b, err := c.loadedOperations()
	if err != nil {
		return record{}, err
	}
	if r, known, err := b.checkBegin(a); known || err != nil {
		return r, err
	}
	workers, err := c.listWorkers(ctx)
	if err != nil {
		return record{}, status.Errorf(codes.Unavailable, "listing workers: %v", err)
	}
	if current := uint32(len(workers)); current != a.Current {
		return record{}, status.Errorf(codes.Aborted, "the cluster has %d workers, not %d: list them again", current,
			a.Current)
	}
	now := time.Now()
	r := record{ID: a.Id, From: a.Current, Desired: a.Desired, Size: a.Size, State: agentpb.Operation_RUNNING.String(),
		Started: now.UTC()}
	if a.Current == a.Desired {
		r = r.finish(agentpb.Operation_FAILURE_UNSPECIFIED, "nothing to do", now)
	}
	return r, c.commit(ctx, r)
}

// commit records an operation. A recorded operation is started: run executes it.
func (c *clusterScaler) commit(ctx context.Context, r record) error {
	c.setProgress("starting")
	err := c.save(ctx, r)
	if errors.Is(err, ErrConflict) {
		if err := c.loadOperations(ctx); err != nil {
			return status.FromContextError(err).Err()
		}
		return status.Errorf(codes.Aborted, "%v: list the workers again", err)
	}
	if err != nil {
		return status.Errorf(codes.Unavailable, "the operation was not started because it can't be recorded: %v", err)
	}
	select {
	case c.wake <- struct{}{}:
	default: // a signal is already pending
	}
	return nil
}

// await waits until an operation has ended and returns it. Errors are gRPC status errors.
func (c *clusterScaler) await(ctx context.Context, id string) (record, error) {
	var r record
	var ok bool
	err := c.waitUntil(ctx, func() bool {
		r, ok = c.operations.find(id)
		return !ok || !r.running() || c.stopping
	})
	switch {
	case err != nil:
		return record{}, status.FromContextError(err).Err()
	case !ok:
		return record{}, status.Errorf(codes.Aborted, "operation %s is no longer recorded", id)
	case r.running():
		return record{},
			status.Errorf(codes.Unavailable, "the agent is shutting down; operation %s continues when it restarts", id)
	}
	return r, nil
}

// run executes started operations until ctx ends. A running provisioner may continue until killCtx
// ends.
func (c *clusterScaler) run(ctx, killCtx context.Context) {
	if c.loadOperations(ctx) != nil {
		return
	}
	for {
		c.mu.Lock()
		r := c.operations.last()
		c.mu.Unlock()
		if r.running() {
			c.execute(ctx, killCtx, r)
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}
