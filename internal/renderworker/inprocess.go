package renderworker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ksctl/gitops/stacks"
)

// InProcess renders in this process. The bound of time holds between the steps of a
// render; one that loops within a step, or eats memory, can't be ended.
func InProcess(timeout time.Duration, outputBytes int64) func(context.Context, stacks.Request) (stacks.Result, error) {
	return inProcess(timeout, outputBytes, stacks.Render)
}

func inProcess(timeout time.Duration, outputBytes int64, render func(context.Context, stacks.Request) (stacks.Result, error)) func(context.Context, stacks.Request) (stacks.Result, error) {
	return func(ctx context.Context, req stacks.Request) (stacks.Result, error) {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		res, err := render(bounded, req)
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded):
			return stacks.Result{}, (&boundError{bound: stacks.TimeBound, limit: timeout.String()}).stopped(req.Stack)
		case err != nil:
			return stacks.Result{}, err
		}
		if n, err := sizeOf(&res); err != nil {
			return stacks.Result{}, err
		} else if n > outputBytes {
			return stacks.Result{}, tooMuch(req.Stack, n, outputBytes)
		}
		return res, nil
	}
}

// sizeOf is how many bytes a result has as JSON, without making it.
func sizeOf(res *stacks.Result) (int64, error) {
	var n counter
	err := json.NewEncoder(&n).Encode(res)
	return int64(n), err
}

type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
