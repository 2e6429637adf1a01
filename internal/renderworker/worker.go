package renderworker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/ksctl/gitops/stacks"
)

// startTimeout is how long a worker may take until it is ready; it takes a
// fraction of a second where the machine has nothing else to do.
const startTimeout = time.Minute

// worker is a process that renders, one request at a time.
type worker struct {
	opts *Options
	cmd  *exec.Cmd
	in   *os.File // what it reads
	out  *os.File // what it writes
	logs head
	// pool ends when the pool is closed.
	pool context.Context
	// retire ends the worker when nobody takes it in time.
	retire *time.Timer
	// dead is closed when the process has ended and was waited for.
	dead chan struct{}
	end  sync.Once
}

// launch starts the process. wait has to be called, once.
func launch(pool context.Context, o *Options) (w *worker, err error) {
	program := o.Program
	if program == "" {
		if program, err = self(); err != nil {
			return nil, err
		}
	}
	var files []*os.File
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			if r, w, err = os.Pipe(); err == nil {
				files = append(files, r, w)
			}
		}
		return r, w
	}
	theirIn, in := pipe()
	out, theirOut := pipe()
	if err != nil {
		return nil, err
	}
	w = &worker{opts: o, pool: pool, in: in, out: out, dead: make(chan struct{})}
	w.cmd = &exec.Cmd{Path: program, Args: append([]string{program}, o.Args...), Stdin: theirIn, Stdout: theirOut, Stderr: &w.logs,
		// All that a worker may know of this process. It collects garbage before it meets the bound.
		Env: []string{fmt.Sprintf("GOMEMLIMIT=%d", o.MemoryBytes/8*7)}}
	attach(w.cmd)
	if err = w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a render worker: %w", err)
	}
	closeAll([]*os.File{theirIn, theirOut})
	return w, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// wait returns when the process is gone.
func (w *worker) wait() {
	_ = w.cmd.Wait() // how it ended is in its state
	close(w.dead)
	w.kill()
}

// kill ends the process. Who reads from it or writes to it fails.
func (w *worker) kill() {
	w.end.Do(func() {
		_ = w.cmd.Process.Kill() // it may be gone
		_ = w.in.Close()
	})
}

// discard ends the process and lets go of it. Nobody reads from it any more.
func (w *worker) discard() {
	w.kill()
	_ = w.out.Close()
}

func (w *worker) gone() bool {
	select {
	case <-w.dead:
		return true
	default:
		return false
	}
}

// greet tells a new worker its bounds and waits until it is ready. It returns what
// the worker could not give up.
func (w *worker) greet(ctx context.Context) (string, error) {
	var h hello
	err := w.exchange(ctx, settings{MemoryBytes: w.opts.MemoryBytes, OutputBytes: w.opts.OutputBytes}, &h, startTimeout)
	if met, ok := errors.AsType[*boundError](err); ok {
		return "", fmt.Errorf("a render worker was stopped before it was ready: %w", met)
	}
	return h.Open, err
}

// render has the worker render. After an error the worker is of no use.
func (w *worker) render(ctx context.Context, req stacks.Request) (*reply, error) {
	var r reply
	err := w.exchange(ctx, req, &r, w.opts.Timeout)
	if met, ok := errors.AsType[*boundError](err); ok {
		return nil, met.stopped(req.Stack)
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// exchange sends a frame and receives one, within the bounds. A worker that meets
// one is killed.
func (w *worker) exchange(ctx context.Context, ask, into any, timeout time.Duration) error {
	done := make(chan error, 1)
	go func() {
		err := send(w.in, ask)
		if err == nil {
			err = receive(w.out, w.opts.OutputBytes+1<<10, into)
		}
		done <- err
	}()
	// It ends when the worker does.
	stop := func(err error) error {
		w.kill()
		<-done
		return err
	}
	clock, look := time.NewTimer(timeout), time.NewTicker(w.opts.watch)
	defer clock.Stop()
	defer look.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return w.died(err)
			}
			return nil
		case <-look.C:
			if have := resident(w.cmd.Process.Pid); have > w.opts.MemoryBytes {
				return stop(&boundError{bound: stacks.MemoryBound, limit: fmt.Sprintf("%d bytes", w.opts.MemoryBytes)})
			}
		case <-clock.C:
			return stop(&boundError{bound: stacks.TimeBound, limit: timeout.String()})
		case <-ctx.Done():
			return stop(ctx.Err())
		case <-w.pool.Done():
			return stop(ErrClosed)
		}
	}
}

// died is the error of a worker that does not answer: how it ended.
func (w *worker) died(cause error) error {
	w.kill()
	<-w.dead
	if errors.Is(cause, errFrame) {
		return cause
	}
	return &diedError{how: w.cmd.ProcessState.String(), fatal: w.logs.fatal(), peak: peak(w.cmd.ProcessState)}
}

// boundError says which bound a worker met.
type boundError struct {
	bound stacks.Bound
	limit string
}

func (e *boundError) Error() string { return "it took more than " + e.limit }

// flags allow more of what is bounded.
var flags = map[stacks.Bound]string{stacks.TimeBound: "--render-timeout", stacks.MemoryBound: "--render-max-memory-bytes"}

func (e *boundError) stopped(stack string) error {
	what := "longer than "
	if e.bound == stacks.MemoryBound {
		what = "more memory than "
	}
	return &stacks.StoppedError{Stack: stack, Bound: e.bound,
		Message: fmt.Sprintf("the render took %s%s, which %s allows, and was stopped", what, e.limit, flags[e.bound])}
}

// diedError says that a worker ended by itself.
type diedError struct {
	how   string
	fatal string // what Go's runtime said, which is nothing of the stack
	peak  int64  // bytes of memory
}

func (e *diedError) Error() string { return "a render worker died: " + e.how }

func (e *diedError) stopped(stack string, memory int64) error {
	how := e.how
	if e.fatal != "" {
		how += ", " + e.fatal
	}
	return &stacks.StoppedError{Stack: stack, Bound: stacks.NoBound,
		Message: fmt.Sprintf("the process that rendered it died, and so did a second one (%s); it had %d bytes of memory, and %s allows %d",
			how, e.peak, flags[stacks.MemoryBound], memory)}
}

// head keeps the beginning of what a worker prints.
type head struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const headBytes = 8 << 10

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(p[:min(len(p), headBytes-h.text.Len())])
	return len(p), nil
}

// fatal is the line in which Go's runtime says why it gives up. Everything else,
// like the value of a panic, may hold what the stack or its values do.
func (h *head) fatal() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for line := range strings.Lines(h.text.String()) {
		if strings.HasPrefix(line, "fatal error: ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
