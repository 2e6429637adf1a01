package renderworker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/ksctl/gitops/stacks"
)

// Usual values of the fields of Options.
const (
	DefaultWorkers     = 2
	DefaultTimeout     = time.Minute
	DefaultMemoryBytes = 512 << 20
	DefaultOutputBytes = 64 << 20
	DefaultIdleTimeout = 5 * time.Second

	defaultMemoryPollInterval = 20 * time.Millisecond
)

// Bounds of the fields of Options. A worker needs some memory before it renders anything.
const (
	MinMemoryBytes = 128 << 20
	MinOutputBytes = 1 << 20
	MaxOutputBytes = 1 << 30
)

// Options configures a Pool. The first four fields are required.
type Options struct {
	// Workers is the maximum number of workers, and so of concurrent renders.
	Workers int
	// Timeout is the timeout of one render, counted from when a worker receives it.
	Timeout time.Duration
	// MemoryBytes is the maximum memory of one worker.
	MemoryBytes int64
	// OutputBytes is the maximum size of the output of one render.
	OutputBytes int64
	// IdleTimeout is how long an idle worker is kept, by default DefaultIdleTimeout.
	IdleTimeout time.Duration
	// Program is the program to start as a worker, with the arguments Args; "" is this program.
	Program string
	Args    []string
	Log     logr.Logger
	// memoryPollInterval is how often the resident memory of a rendering worker is checked. Between
	// two checks only the kernel's limit on allocated memory applies.
	memoryPollInterval time.Duration
}

// ErrClosed is the error of a render whose pool is closed.
var ErrClosed = errors.New("the render worker pool is closed")

// Pool renders stacks in worker processes. It is safe for concurrent use.
type Pool struct {
	opts Options
	// slots holds one element per render in progress.
	slots chan struct{}
	// ctx is canceled when the pool is closed.
	ctx    context.Context
	cancel context.CancelFunc
	// sealOnce guards closeInheritedOnExec.
	sealOnce sync.Once
	// warnOnce guards the log line about restrictions that workers cannot apply on this system.
	warnOnce sync.Once

	mu      sync.Mutex
	idle    []*worker // the most recently used worker is the last
	closed  bool
	running sync.WaitGroup // the worker processes
}

// New returns a pool without workers: they are started on demand. The caller must close it.
func New(o Options) *Pool {
	o.IdleTimeout = cmp.Or(o.IdleTimeout, DefaultIdleTimeout)
	o.memoryPollInterval = cmp.Or(o.memoryPollInterval, defaultMemoryPollInterval)
	p := &Pool{opts: o, slots: make(chan struct{}, o.Workers)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Close kills all workers, which fails the renders in progress with ErrClosed. It returns after the
// workers exited.
func (p *Pool) Close() {
	p.cancel()
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, w := range idle {
		w.idleTimer.Stop()
		w.discard()
	}
	p.running.Wait()
}

// maxAttempts is how often a render is started if its worker exits unexpectedly. A worker can die
// because of what an earlier render left behind, or because the machine ran out of memory.
const maxAttempts = 2

// Render renders a stack in a worker. It waits while all workers are busy. It fails with a
// stacks.StoppedError if the render exceeded a limit, or if its worker exited in each attempt.
func (p *Pool) Render(ctx context.Context, req stacks.Request) (stacks.Result, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return stacks.Result{}, ctx.Err()
	case <-p.ctx.Done():
		return stacks.Result{}, ErrClosed
	}
	defer func() { <-p.slots }()
	var exited *workerExitedError
	for range maxAttempts {
		res, err := p.renderOnce(ctx, req)
		if !errors.As(err, &exited) {
			return res, err
		}
	}
	return stacks.Result{}, exited.toStoppedError(req.Stack, p.opts.MemoryBytes)
}

// renderOnce makes one attempt to render a stack. An exit of the worker is a workerExitedError.
func (p *Pool) renderOnce(ctx context.Context, req stacks.Request) (stacks.Result, error) {
	w := p.popIdle()
	if w == nil {
		var err error
		if w, err = p.startWorker(ctx); err != nil {
			return stacks.Result{}, err
		}
	}
	r, err := w.render(ctx, req)
	if err != nil {
		w.discard()
		return stacks.Result{}, err
	}
	p.putIdle(w)
	return r.toResult()
}

// popIdle returns the most recently used idle worker, or nil.
func (p *Pool) popIdle() *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		w := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		w.idleTimer.Stop()
		select {
		case <-w.exited:
			w.discard()
		default:
			return w
		}
	}
	return nil
}

// startWorker starts a worker and waits until it is ready.
func (p *Pool) startWorker(ctx context.Context) (*worker, error) {
	w, err := p.launchWorker()
	if err != nil {
		return nil, err
	}
	unenforced, err := w.handshake(ctx)
	if err != nil {
		w.discard()
		return nil, err
	}
	if unenforced != "" {
		p.warnOnce.Do(func() {
			p.opts.Log.Info("the sandbox of render workers is incomplete on this system", "kept", unenforced)
		})
	}
	return w, nil
}

// launchWorker starts the process of a worker, unless the pool is closed.
func (p *Pool) launchWorker() (*worker, error) {
	p.sealOnce.Do(closeInheritedOnExec)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	w, err := launch(p.ctx, &p.opts)
	if err != nil {
		return nil, err
	}
	p.running.Go(w.wait)
	return w, nil
}

// putIdle keeps a worker for the next render until its idle timeout.
func (p *Pool) putIdle(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		w.discard()
		return
	}
	w.idleTimer = time.AfterFunc(p.opts.IdleTimeout, func() { p.retire(w) })
	p.idle = append(p.idle, w)
}

// retire stops a worker whose idle timeout has passed, unless a render has taken it meanwhile.
func (p *Pool) retire(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.idle, w); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		w.discard()
	}
}
