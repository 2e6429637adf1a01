package renderworker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ksctl/gitops/stacks"
)

// InProcess returns a function that renders in this process. The timeout is only checked between
// the steps of a render: a render that loops within a step, or exhausts memory, cannot be stopped.
func InProcess(timeout time.Duration, outputBytes int64) func(context.Context, stacks.Request) (stacks.Result, error) {
	return inProcess(timeout, outputBytes, stacks.Render)
}

func inProcess(timeout time.Duration, outputBytes int64, render func(context.Context, stacks.Request) (stacks.Result, error)) func(context.Context, stacks.Request) (stacks.Result, error) {
	return func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
		renderCtx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		res, err := render(renderCtx, req)
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(renderCtx.Err(), context.DeadlineExceeded):
			return stacks.Result{}, (&limitExceededError{bound: stacks.TimeBound, limit: timeout.String()}).toStoppedError(req.Stack)
		case err != nil:
			return stacks.Result{}, err
		}
		if n, err := jsonSize(&res); err != nil {
			return stacks.Result{}, err
		} else if n > outputBytes {
			return stacks.Result{}, outputTooLargeError(req.Stack, n, outputBytes)
		}
		return res, nil
	}
}

// jsonSize returns the size of a result as JSON in bytes, without keeping the JSON in memory.
func jsonSize(res *stacks.Result) (int64, error) {
	var n byteCounter
	err := json.NewEncoder(&n).Encode(res)
	return int64(n), err
}

type byteCounter int64

// Write implements io.Writer.
func (c *byteCounter) Write(p []byte) (int, error) {
	*c += byteCounter(len(p))
	return len(p), nil
}
