package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxRequest is the maximum size of a request in bytes.
const maxRequest = 1 << 20

// Serve implements a program in Go: it reads a request from in, executes it with runner and writes
// the response to out. Serve returns errors of reading and writing; errors of the runner and of an
// invalid request are written to the response.
func Serve(ctx context.Context, in io.Reader, out io.Writer, runner Runner) error {
	data, err := io.ReadAll(io.LimitReader(in, maxRequest))
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	var r Request
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("decoding the request on standard input: %w", err)
	}
	response := Response{APIVersion: APIVersion}
	if invalid := r.validate(); invalid != nil {
		response.Error = invalid
	} else {
		if r.Deadline != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, *r.Deadline)
			defer cancel()
		}
		response.Workers, err = runner.Run(ctx, r)
		response.Error = toError(err)
		if r.Operation == List && response.Workers == nil {
			response.Workers = []Worker{}
		}
	}
	return json.NewEncoder(out).Encode(response)
}

// validate returns the reason why a request is invalid, or nil.
func (r *Request) validate() *Error {
	newError := func(code, format string, args ...any) *Error {
		return &Error{Code: code, Class: Other, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.APIVersion != APIVersion:
		return newError("UnknownVersion", "apiVersion %.60q is not supported; use %s", r.APIVersion, APIVersion)
	case r.Operation != List && r.Operation != Create && r.Operation != Delete:
		return newError("UnknownOperation", "operation %.60q is not supported; use List, Create or Delete", r.Operation)
	case r.Cluster.Name == "":
		return newError("BadRequest", "cluster.name is required")
	case r.Operation == Create && r.From > r.Desired, r.Operation == Delete && r.From < r.Desired:
		return newError("BadRequest", "invalid range for %s: from %d to desired %d", r.Operation, r.From, r.Desired)
	case r.Operation == Create && r.Size == "":
		return newError("BadRequest", "size is required for Create")
	}
	return nil
}

// toError converts an error to the error of a response; nil to nil.
func toError(err error) *Error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Code: "Failed", Class: Other, Message: err.Error()}
	}
	return e.sanitize()
}
