package renderworker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/ksctl/gitops/stacks"
)

// Defaults of Options.
const (
	DefaultWorkers     = 2
	DefaultTimeout     = time.Minute
	DefaultMemoryBytes = 512 << 20
	DefaultOutputBytes = 64 << 20
	DefaultIdle        = 5 * time.Second
)

// What Options may say. A worker needs some memory before it renders anything.
const (
	MinMemoryBytes = 128 << 20
	MinOutputBytes = 1 << 20
	MaxOutputBytes = 1 << 30
)

// Options of a Pool. Zero fields take the defaults.
type Options struct {
	// Workers is how many render at the same time.
	Workers int
	// Timeout of one render, from when a worker has it.
	Timeout time.Duration
	// MemoryBytes is what one worker may take.
	MemoryBytes int64
	// OutputBytes is what one render may come to.
	OutputBytes int64
	// Idle is how long a worker stays that has nothing to do.
	Idle time.Duration
	// Program to start as a worker, this one when empty, and its arguments.
	Program string
	Args    []string
	Log     logr.Logger
	// watch is how often the memory of a worker that renders is looked at. The
	// kernel's own bound, of what is allocated, holds in between.
	watch time.Duration
}

func (o Options) withDefaults() Options {
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	if o.OutputBytes == 0 {
		o.OutputBytes = DefaultOutputBytes
	}
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	if o.watch == 0 {
		o.watch = 20 * time.Millisecond
	}
	return o
}

// ErrClosed is what a render fails with when the pool is closed.
var ErrClosed = errors.New("the render workers were stopped")

// Pool renders in worker processes. It is safe for concurrent use.
type Pool struct {
	opts Options
	// slots are taken by renders under way.
	slots chan struct{}
	// ctx ends when the pool is closed.
	ctx    context.Context
	cancel context.CancelFunc
	seal   sync.Once
	// open tells once what workers can't give up here.
	open sync.Once

	mu     sync.Mutex
	idle   []*worker // the one that rendered last is the last
	closed bool
	alive  sync.WaitGroup
}

// New returns a pool without workers: they are started when there is something to
// render. The caller closes it.
func New(o Options) *Pool {
	o = o.withDefaults()
	p := &Pool{opts: o, slots: make(chan struct{}, o.Workers)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Close ends every worker, and the renders under way. It returns when all are gone.
func (p *Pool) Close() {
	p.cancel()
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, w := range idle {
		w.retire.Stop()
		w.discard()
	}
	p.alive.Wait()
}

// tries of one render: a worker can die of what the render before left behind, or
// because the machine ran out of memory.
const tries = 2

// Render renders in a worker, and waits for one that is free. It fails with a
// stacks.StoppedError when the render met a bound, or its worker died each time.
func (p *Pool) Render(ctx context.Context, req stacks.Request) (stacks.Result, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return stacks.Result{}, ctx.Err()
	case <-p.ctx.Done():
		return stacks.Result{}, ErrClosed
	}
	defer func() { <-p.slots }()
	var died *diedError
	for range tries {
		res, err := p.once(ctx, req)
		if !errors.As(err, &died) {
			return res, err
		}
	}
	return stacks.Result{}, died.stopped(req.Stack, p.opts.MemoryBytes)
}

func (p *Pool) once(ctx context.Context, req stacks.Request) (stacks.Result, error) {
	w := p.takeIdle()
	if w == nil {
		var err error
		if w, err = p.start(ctx); err != nil {
			return stacks.Result{}, err
		}
	}
	r, err := w.render(ctx, req)
	if err != nil {
		w.discard()
		return stacks.Result{}, err
	}
	p.giveBack(w)
	return r.outcome()
}

// takeIdle returns the worker that rendered last; nil when there is none.
func (p *Pool) takeIdle() *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		w := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		w.retire.Stop()
		if !w.gone() {
			return w
		}
		w.discard()
	}
	return nil
}

// start starts a worker and waits until it is ready.
func (p *Pool) start(ctx context.Context) (*worker, error) {
	w, err := p.launch()
	if err != nil {
		return nil, err
	}
	open, err := w.greet(ctx)
	if err != nil {
		w.discard()
		return nil, err
	}
	if open != "" {
		p.open.Do(func() { p.opts.Log.Info("render workers keep what they can't give up on this system", "kept", open) })
	}
	return w, nil
}

func (p *Pool) launch() (*worker, error) {
	p.seal.Do(sealInherited)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	w, err := launch(p.ctx, &p.opts)
	if err != nil {
		return nil, err
	}
	p.alive.Go(w.wait)
	return w, nil
}

// giveBack keeps a worker for the next render, for a while.
func (p *Pool) giveBack(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		w.discard()
		return
	}
	w.retire = time.AfterFunc(p.opts.Idle, func() { p.dismiss(w) })
	p.idle = append(p.idle, w)
}

// dismiss ends a worker that nobody took in time.
func (p *Pool) dismiss(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.idle, w); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		w.discard()
	}
}
