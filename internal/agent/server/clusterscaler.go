package server

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	beginSlot, listSlot chan struct{}
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
		beginSlot: make(chan struct{}, 1), listSlot: make(chan struct{}, 1), wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// acquire takes the only slot of a semaphore. The caller must call release.
func acquire(ctx context.Context, slot chan struct{}) (release func(), err error) {
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// sleep waits for d, or returns the error of ctx when it ends.
func (c *clusterScaler) sleep(ctx context.Context, d time.Duration) error {
	t := c.opts.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C():
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
		c.log.Error(err, "loading the recorded operations failed; retrying, and starting no operation until it succeeds")
		if err := c.sleep(ctx, wait); err != nil {
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
		return operationLog{}, status.Error(codes.Unavailable, "the agent has not loaded its recorded operations yet: try again later")
	}
	return c.operations, nil
}

// operationProto converts a record to its gRPC message. The message of a running operation is its
// progress.
func (c *clusterScaler) operationProto(r record) *agentpb.Operation {
	out := r.toProto()
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
		if err := c.sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// listWorkers calls the provisioner to list the workers.
func (c *clusterScaler) listWorkers(ctx context.Context) ([]provisioner.Worker, error) {
	release, err := acquire(ctx, c.listSlot)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, c.opts.ListTimeout)
	defer cancel()
	return c.Runner.Run(ctx, provisioner.Request{Operation: provisioner.List, Cluster: c.Cluster.Cluster})
}

// begin starts an operation and returns it. If the ID is known, begin returns the existing
// operation and starts nothing.
func (c *clusterScaler) begin(ctx context.Context, a beginRequest) (record, error) {
	if err := a.validate(c.opts.MaxWorkers); err != nil {
		return record{}, err
	}
	release, err := acquire(ctx, c.beginSlot)
	if err != nil {
		return record{}, err
	}
	defer release()
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
	if current := uint32(len(workers)); current != a.current {
		return record{}, status.Errorf(codes.Aborted, "the cluster has %d workers, not %d: list them again", current, a.current)
	}
	now := c.opts.Clock.Now()
	r := record{ID: a.id, From: a.current, Desired: a.desired, Size: a.size, State: agentpb.Operation_RUNNING.String(), Started: now.UTC()}
	if a.current == a.desired {
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
	for {
		c.mu.Lock()
		r, ok := c.operations.find(id)
		changed, stopping := c.changed, c.stopping
		c.mu.Unlock()
		switch {
		case ok && !r.running():
			return r, nil
		case !ok:
			return record{}, status.Errorf(codes.Aborted, "operation %s is no longer recorded", id)
		case stopping:
			return record{}, status.Errorf(codes.Unavailable, "the agent is shutting down; operation %s continues when it restarts", id)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return record{}, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// run executes started operations until ctx ends. A running provisioner may continue until killCtx
// ends.
func (c *clusterScaler) run(ctx, killCtx context.Context) {
	if c.loadOperations(ctx) != nil {
		return
	}
	for {
		c.mu.Lock()
		r, ok := c.operations.last()
		c.mu.Unlock()
		if ok && r.running() {
			c.execute(ctx, killCtx, r)
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}
