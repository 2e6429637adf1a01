package renderworker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"

	"github.com/ksctl/gitops/stacks"
)

// Command is the argument that makes this program a render worker.
const Command = "render-worker"

// Main is a worker's whole life. It returns the status to exit with.
func Main() int { return work(stacks.Render) }

func work(render func(context.Context, stacks.Request) (stacks.Result, error)) int {
	in, out := os.Stdin, os.Stdout
	// What a library prints is no frame.
	os.Stdout = os.Stderr
	if err := serve(context.Background(), in, out, render, confine); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// ahead is how many requests may wait in a worker: there is one at a time, and
// reading on tells at once when nobody is left to answer.
const ahead = 1

// serve answers requests until in ends. The render of that moment is not waited
// for: nobody wants it any more, and it may never end.
func serve(ctx context.Context, in io.Reader, out io.Writer, render func(context.Context, stacks.Request) (stacks.Result, error), confine func(settings) string) error {
	in = bufio.NewReaderSize(in, 1<<16)
	var s settings
	if err := receive(in, maxRequest, &s); err != nil {
		return ended(err)
	}
	if err := send(out, hello{Open: confine(s)}); err != nil {
		return err
	}
	requests, failed := make(chan stacks.Request, ahead), make(chan error, 2)
	go func() {
		for {
			var req stacks.Request
			if err := receive(in, maxRequest, &req); err != nil {
				failed <- err
				return
			}
			requests <- req
		}
	}()
	go func() {
		for req := range requests {
			if err := answer(ctx, out, req, render, s.OutputBytes); err != nil {
				failed <- err
				return
			}
			tidy()
		}
	}()
	return ended(<-failed)
}

// ended is nil when the other side has nothing more to say.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func answer(ctx context.Context, out io.Writer, req stacks.Request, render func(context.Context, stacks.Request) (stacks.Result, error), limit int64) error {
	res, err := guarded(ctx, req, render)
	body, err := replyTo(req.Stack, res, err, limit)
	if err != nil {
		return err
	}
	return writeFrame(out, body)
}

// guarded turns a panic into an error of this render only.
func guarded(ctx context.Context, req stacks.Request, render func(context.Context, stacks.Request) (stacks.Result, error)) (res stacks.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			res, err = stacks.Result{}, &stacks.Error{Stack: req.Stack, Message: fmt.Sprintf("the renderer gave up: %v", v)}
		}
	}()
	return render(ctx, req)
}

// keptBytes is what a worker may keep between renders without giving it back.
const keptBytes = 32 << 20

// tidy gives memory back after a large render: the next one may be small, or never come.
func tidy() {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Uint64()-sample[1].Value.Uint64() > keptBytes {
		debug.FreeOSMemory()
	}
}
