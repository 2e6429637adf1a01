package renderworker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ksctl/gitops/stacks"
)

// RenderFunc renders a stack.
type RenderFunc = func(context.Context, stacks.Request) (stacks.Result, error)

// InProcess returns a function that renders in this process. The timeout is only checked between
// the steps of a render: a render that loops within a step, or exhausts memory, cannot be stopped.
func InProcess(timeout time.Duration, outputBytes int64) RenderFunc {
	return inProcess(timeout, outputBytes, stacks.Render)
}

func inProcess(timeout time.Duration, outputBytes int64, render RenderFunc) RenderFunc {
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
