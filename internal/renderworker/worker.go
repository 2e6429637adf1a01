package renderworker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ksctl/gitops/stacks"
)

// startTimeout is how long a worker may take until it is ready. On an idle machine it takes a
// fraction of a second.
const startTimeout = time.Minute

// worker is a process that renders one request at a time.
type worker struct {
	opts   *Options
	cmd    *exec.Cmd
	stdin  *os.File   // the pool's end of the worker's standard input
	stdout *os.File   // the pool's end of the worker's standard output
	stderr outputHead // the worker's standard error
	// poolCtx is canceled when the pool is closed.
	poolCtx context.Context
	// idleTimer stops the worker if no render takes it in time.
	idleTimer *time.Timer
	// exited is closed when the process has exited and was waited for.
	exited chan struct{}
}

// launch starts a worker process. The caller must call wait exactly once.
func launch(poolCtx context.Context, o *Options) (w *worker, err error) {
	program := o.Program
	if program == "" {
		if program, err = executable(); err != nil {
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
	childStdin, in := pipe()
	out, childStdout := pipe()
	if err != nil {
		return nil, err
	}
	w = &worker{opts: o, poolCtx: poolCtx, stdin: in, stdout: out, exited: make(chan struct{})}
	w.cmd = &exec.Cmd{Path: program, Args: append([]string{program}, o.Args...), Stdin: childStdin, Stdout: childStdout,
		Stderr: &w.stderr,
		// The only environment variable of a worker. It makes the garbage collector work harder
		// before the process reaches its memory limit.
		Env: []string{fmt.Sprintf("GOMEMLIMIT=%d", o.MemoryBytes/8*7)}}
	killWithParent(w.cmd)
	if err = w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a render worker: %w", err)
	}
	closeAll([]*os.File{childStdin, childStdout})
	return w, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// wait returns when the process has exited.
func (w *worker) wait() {
	_ = w.cmd.Wait() // the exit status is in ProcessState
	close(w.exited)
	w.kill()
}

// kill kills the process. Reads from it and writes to it fail afterwards. It may be called more
// than once.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill() // fails if the process has exited
	_ = w.stdin.Close()
}

// discard kills the process and closes its output. It must not be called during an exchange.
func (w *worker) discard() {
	w.kill()
	_ = w.stdout.Close()
}

// handshake sends a new worker its settings and waits until it is ready. It returns a description
// of the restrictions that the worker could not apply.
func (w *worker) handshake(ctx context.Context) (string, error) {
	var h readyMessage
	err := w.exchange(ctx, settings{MemoryBytes: w.opts.MemoryBytes, OutputBytes: w.opts.OutputBytes}, &h, startTimeout)
	if exceeded, ok := errors.AsType[*limitExceededError](err); ok {
		return "", fmt.Errorf("waiting for a render worker to start: %w", exceeded)
	}
	return h.Unenforced, err
}

// render renders a request in the worker. After an error the worker must be discarded.
func (w *worker) render(ctx context.Context, req stacks.Request) (*reply, error) {
	var r reply
	err := w.exchange(ctx, req, &r, w.opts.Timeout)
	if exceeded, ok := errors.AsType[*limitExceededError](err); ok {
		return nil, exceeded.toStoppedError(req.Stack)
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// exchange sends a message and receives one. It kills the worker if that exceeds the timeout or the
// memory limit, or if ctx or the pool's context is done.
func (w *worker) exchange(ctx context.Context, request, response any, timeout time.Duration) error {
	done := make(chan error, 1)
	go func() {
		err := writeMessage(w.stdin, request)
		if err == nil {
			err = readMessage(w.stdout, w.opts.OutputBytes+1<<10, response)
		}
		done <- err
	}()
	// stop kills the worker, which ends the goroutine above.
	stop := func(err error) error {
		w.kill()
		<-done
		return err
	}
	timer, memoryPoll := time.NewTimer(timeout), time.NewTicker(w.opts.memoryPollInterval)
	defer timer.Stop()
	defer memoryPoll.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return w.exitError(err)
			}
			return nil
		case <-memoryPoll.C:
			if used := residentBytes(w.cmd.Process.Pid); used > w.opts.MemoryBytes {
				return stop(&limitExceededError{bound: stacks.MemoryBound,
					limit: fmt.Sprintf("%d bytes", w.opts.MemoryBytes)})
			}
		case <-timer.C:
			return stop(&limitExceededError{bound: stacks.TimeBound, limit: timeout.String()})
		case <-ctx.Done():
			return stop(ctx.Err())
		case <-w.poolCtx.Done():
			return stop(ErrClosed)
		}
	}
}

// exitError waits for the exit of a worker that stopped replying and returns the reason. An
// errInvalidFrame is returned as it is.
func (w *worker) exitError(cause error) error {
	w.kill()
	<-w.exited
	if errors.Is(cause, errInvalidFrame) {
		return cause
	}
	return &workerExitedError{status: w.cmd.ProcessState.String(), fatalError: w.stderr.fatalError(),
		peakBytes: peakBytes(w.cmd.ProcessState)}
}

// limitExceededError is returned if a worker exceeded its timeout or its memory limit.
type limitExceededError struct {
	bound stacks.Bound
	limit string
}

func (e *limitExceededError) Error() string {
	return fmt.Sprintf("the %s limit of %s was exceeded", e.bound, e.limit)
}

// limitFlags are the controller's flags that set the limits.
var limitFlags = map[stacks.Bound]string{stacks.TimeBound: "--render-timeout",
	stacks.MemoryBound: "--render-max-memory-bytes"}

// toStoppedError returns the error of a render of stack that was stopped at the limit.
func (e *limitExceededError) toStoppedError(stack string) error {
	exceeded := "longer than "
	if e.bound == stacks.MemoryBound {
		exceeded = "more memory than "
	}
	return &stacks.StoppedError{Stack: stack, Bound: e.bound,
		Message: fmt.Sprintf("the render was stopped because it took %s%s; simplify the stack or increase %s", exceeded,
			e.limit, limitFlags[e.bound])}
}

// workerExitedError is returned if a worker exited unexpectedly.
type workerExitedError struct {
	status     string // of the process: its exit status or signal
	fatalError string // the fatal error of the Go runtime, which contains nothing of the stack
	peakBytes  int64  // peak resident memory
}

func (e *workerExitedError) Error() string { return "a render worker exited unexpectedly: " + e.status }

// toStoppedError returns the error of a render of stack whose worker exited in each attempt. memory
// is the memory limit in bytes.
func (e *workerExitedError) toStoppedError(stack string, limitBytes int64) error {
	status := e.status
	if e.fatalError != "" {
		status += ", " + e.fatalError
	}
	return &stacks.StoppedError{Stack: stack, Bound: stacks.NoBound,
		Message: fmt.Sprintf("the render worker exited unexpectedly twice (%s); its peak memory was %d bytes, and %s "+
			"allows %d",
			status, e.peakBytes, limitFlags[stacks.MemoryBound], limitBytes)}
}

// outputHead is a writer that keeps the first maxHeadBytes and drops the rest. It is read after the
// process has exited.
type outputHead struct{ text bytes.Buffer }

const maxHeadBytes = 8 << 10

// Write implements io.Writer.
func (h *outputHead) Write(p []byte) (int, error) {
	h.text.Write(p[:min(len(p), maxHeadBytes-h.text.Len())])
	return len(p), nil
}

// fatalError returns the "fatal error" line of the Go runtime, or "". Other output, such as the
// value of a panic, is not reported: it may contain data of the stack or its values.
func (h *outputHead) fatalError() string {
	for line := range strings.Lines(h.text.String()) {
		if strings.HasPrefix(line, "fatal error: ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
