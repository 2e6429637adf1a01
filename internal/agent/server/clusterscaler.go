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

// Back-off of what is tried again until it works.
const firstPause, longestPause = time.Second, 15 * time.Second

// cluster is one that the agent scales, with its goroutine's state.
type cluster struct {
	Cluster
	opts *Options
	log  logr.Logger

	// beginning and listing have room for one at a time: who begins something, and who asks
	// the provisioner what there is.
	beginning, listing chan struct{}
	// wake tells the goroutine that something was begun.
	wake chan struct{}

	mu sync.Mutex
	// loaded is true once it is known what was written down, stopping once nothing more may begin.
	loaded, stopping bool
	// raw is the document that the store has, book what it says.
	raw  []byte
	book book
	// doing is what the operation does that runs.
	doing string
	// changed is closed, and replaced, when the book changes or stopping does.
	changed chan struct{}
}

func newCluster(c Cluster, o *Options) *cluster {
	return &cluster{Cluster: c, opts: o, log: o.Log.WithValues("cluster", c.Name),
		beginning: make(chan struct{}, 1), listing: make(chan struct{}, 1), wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// enter takes the only place of a channel; leave is to be called.
func enter(ctx context.Context, place chan struct{}) (leave func(), err error) {
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// pause waits for a while; the error is that of the context.
func (c *cluster) pause(ctx context.Context, d time.Duration) error {
	t := c.opts.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C():
		return nil
	}
}

// load reads what was written down; it tries until it could, or ctx ends.
func (c *cluster) load(ctx context.Context) error {
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		raw, err := c.opts.Store.Load(ctx, c.Name)
		var b book
		if err == nil {
			b, err = readBook(raw)
		}
		if err == nil {
			c.change(func() { c.raw, c.book, c.loaded = raw, b, true })
			return nil
		}
		c.log.Error(err, "can't read what was begun; nothing is begun until then")
		if err := c.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// change changes what mu guards, and tells those who wait for it.
func (c *cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// tell says what the operation does that runs.
func (c *cluster) tell(doing string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doing = doing
}

// open returns the book; an error if nothing may begin.
func (c *cluster) open() (book, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopping:
		return book{}, status.Error(codes.Unavailable, "the agent ends: ask again")
	case !c.loaded:
		return book{}, status.Error(codes.Unavailable, "the agent has not yet read what it had begun: ask again")
	}
	return c.book, nil
}

// on is an operation on the wire, with what it does if it runs.
func (c *cluster) on(r record) *agentpb.Operation {
	out := r.message()
	if r.running() {
		c.mu.Lock()
		defer c.mu.Unlock()
		out.Message = c.doing
	}
	return out
}

// save writes a record down, and then counts it.
func (c *cluster) save(ctx context.Context, r record) error {
	c.mu.Lock()
	old, b := c.raw, c.book.put(r)
	c.mu.Unlock()
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := c.opts.Store.Save(ctx, c.Name, old, data); err != nil {
		return err
	}
	c.change(func() { c.raw, c.book = data, b })
	return nil
}

// saveAnyway writes a record down, however long that takes: until ctx ends.
func (c *cluster) saveAnyway(ctx context.Context, r record) error {
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		err := c.save(ctx, r)
		if err == nil {
			return nil
		}
		c.log.Error(err, "can't write down how an operation stands; trying again", "id", r.ID)
		if errors.Is(err, ErrTaken) {
			if err := c.load(ctx); err != nil {
				return err
			}
		}
		if err := c.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// list asks the provisioner which workers there are.
func (c *cluster) list(ctx context.Context) ([]provisioner.Worker, error) {
	leave, err := enter(ctx, c.listing)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, c.opts.ListWithin)
	defer cancel()
	return c.Runner.Run(ctx, provisioner.Request{Operation: provisioner.List, Cluster: c.Cluster.Cluster})
}

// begin begins an operation and returns it, or the one that is known by the id.
func (c *cluster) begin(ctx context.Context, a ask) (record, error) {
	if err := a.check(c.opts.MaxWorkers); err != nil {
		return record{}, err
	}
	leave, err := enter(ctx, c.beginning)
	if err != nil {
		return record{}, err
	}
	defer leave()
	b, err := c.open()
	if err != nil {
		return record{}, err
	}
	if r, known, err := b.meet(a); known || err != nil {
		return r, err
	}
	workers, err := c.list(ctx)
	if err != nil {
		return record{}, status.Errorf(codes.Unavailable, "which workers there are is not known: %v", err)
	}
	if have := uint32(len(workers)); have != a.current {
		return record{}, status.Errorf(codes.Aborted, "there are %d workers, not %d: look again", have, a.current)
	}
	now := c.opts.Clock.Now()
	r := record{ID: a.id, From: a.current, Desired: a.desired, Size: a.size, State: agentpb.Operation_RUNNING.String(), Started: now.UTC()}
	if a.current == a.desired {
		r = r.end(agentpb.Operation_FAILURE_UNSPECIFIED, "there was nothing to do", now)
	}
	return r, c.commit(ctx, r)
}

// commit writes down an operation, which begins with that.
func (c *cluster) commit(ctx context.Context, r record) error {
	c.tell("it begins")
	err := c.save(ctx, r)
	if errors.Is(err, ErrTaken) {
		if err := c.load(ctx); err != nil {
			return status.FromContextError(err).Err()
		}
		return status.Errorf(codes.Aborted, "%v: look again", err)
	}
	if err != nil {
		return status.Errorf(codes.Unavailable, "it can't be written down, so it was not begun: %v", err)
	}
	select {
	case c.wake <- struct{}{}:
	default: // it is awake
	}
	return nil
}

// await waits until an operation has ended, and returns it.
func (c *cluster) await(ctx context.Context, id string) (record, error) {
	for {
		c.mu.Lock()
		r, ok := c.book.find(id)
		changed, stopping := c.changed, c.stopping
		c.mu.Unlock()
		switch {
		case ok && !r.running():
			return r, nil
		case !ok:
			return record{}, status.Errorf(codes.Aborted, "operation %s is not known any more", id)
		case stopping:
			return record{}, status.Errorf(codes.Unavailable, "the agent ends; operation %s goes on at its next start", id)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return record{}, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// run does what is begun, until ctx ends. A run of the provisioner may go on until hard does.
func (c *cluster) run(ctx, hard context.Context) {
	if c.load(ctx) != nil {
		return
	}
	for {
		c.mu.Lock()
		r, ok := c.book.last()
		c.mu.Unlock()
		if ok && r.running() {
			c.work(ctx, hard, r)
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}
