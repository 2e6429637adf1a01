package renderworker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/ksctl/gitops/stacks"
)

// Command is the argument that makes the program run as a render worker.
const Command = "render-worker"

// Main runs a worker until its standard input is closed. It returns the exit code of the process.
func Main() int {
	return runWorker(func(s settings) RenderFunc { return stacks.NewChartCache(s.chartCacheBytes()).Render })
}

// runWorker runs a worker that renders with the result of newRender.
func runWorker(newRender func(settings) RenderFunc) int {
	in, out := os.Stdin, os.Stdout
	// Output that a library prints must not end up between the frames.
	os.Stdout = os.Stderr
	if err := serve(in, out, newRender); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// maxQueuedRequests is how many requests a worker reads ahead. The pool sends one at a time;
// reading on during a render detects EOF at once.
const maxQueuedRequests = 1

// serve handles requests until EOF. It does not wait for a render in progress then: the result is
// not needed anymore, and the render may never end.
func serve(in io.Reader, out io.Writer, newRender func(settings) RenderFunc) error {
	in = bufio.NewReaderSize(in, 1<<16)
	var s settings
	if err := readMessage(in, maxRequestBytes, &s); err != nil {
		return ignoreEOF(err)
	}
	if err := writeMessage(out, readyMessage{Unenforced: sandbox(s)}); err != nil {
		return err
	}
	requests, failed := make(chan stacks.Request, maxQueuedRequests), make(chan error, 2)
	go func() {
		for {
			var req stacks.Request
			if err := readMessage(in, maxRequestBytes, &req); err != nil {
				failed <- err
				return
			}
			requests <- req
		}
	}()
	render := newRender(s)
	go func() {
		for req := range requests {
			if err := handleRequest(out, req, render, s.OutputBytes); err != nil {
				failed <- err
				return
			}
			releaseMemory(maxRetainedBytes + s.chartCacheBytes())
		}
	}()
	return ignoreEOF(<-failed)
}

// ignoreEOF returns nil for io.EOF, which means that the pool closed the connection.
func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// handleRequest renders one request and writes the reply.
func handleRequest(out io.Writer, req stacks.Request, render RenderFunc, limit int64) error {
	res, err := renderRecovered(req, render)
	body, err := encodeReply(req.Stack, res, err, limit)
	if err != nil {
		return err
	}
	return writeFrame(out, body)
}

// renderRecovered calls render and turns a panic into an error in the stack, so that the worker
// survives.
func renderRecovered(req stacks.Request, render RenderFunc) (res stacks.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			res, err = stacks.Result{},
				&stacks.Error{Stack: req.Stack, Message: fmt.Sprintf("the renderer panicked: %v", v)}
		}
	}()
	return render(context.Background(), req)
}

// maxRetainedBytes is how much memory a worker may keep between two renders, in addition to charts.
const maxRetainedBytes = 32 << 20

// releaseMemory returns memory to the system after a large render if the process has more than
// retained bytes. The next render may be small, or never come.
func releaseMemory(retained int64) {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Uint64()-sample[1].Value.Uint64() > uint64(retained) {
		debug.FreeOSMemory()
	}
}

// RenderFunc renders a stack.
type RenderFunc = func(context.Context, stacks.Request) (stacks.Result, error)

// InProcess returns a function that renders in this process. The timeout is only checked between
// the steps of a render: a render that loops within a step, or exhausts memory, cannot be stopped.
func InProcess(timeout time.Duration, outputBytes int64) RenderFunc {
	return inProcess(timeout, outputBytes, stacks.NewChartCache(stacks.DefaultChartCacheBytes).Render)
}

func inProcess(timeout time.Duration, outputBytes int64, render RenderFunc) RenderFunc {
	return func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
		renderCtx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		res, err := render(renderCtx, req)
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(renderCtx.Err(), context.DeadlineExceeded):
			return stacks.Result{},
				(&limitExceededError{bound: stacks.TimeBound, limit: timeout.String()}).toStoppedError(req.Stack)
		case err != nil:
			return stacks.Result{}, err
		}
		var size byteCounter // without keeping the JSON in memory
		if err := json.NewEncoder(&size).Encode(&res); err != nil {
			return stacks.Result{}, err
		}
		if n := int64(size); n > outputBytes {
			return stacks.Result{}, outputTooLargeError(req.Stack, n, outputBytes)
		}
		return res, nil
	}
}

type byteCounter int64

// Write implements io.Writer.
func (c *byteCounter) Write(p []byte) (int, error) {
	*c += byteCounter(len(p))
	return len(p), nil
}
