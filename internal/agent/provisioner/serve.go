package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxRequest bytes are read of a request.
const maxRequest = 1 << 20

// Serve is the body of a program that is written in Go: it reads a request, has it done and
// writes the answer. The error is about reading and writing; what the runner returns is answered.
func Serve(ctx context.Context, in io.Reader, out io.Writer, runner Runner) error {
	data, err := io.ReadAll(io.LimitReader(in, maxRequest))
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	var r Request
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("the request on standard input is not one JSON document: %w", err)
	}
	a := Answer{APIVersion: APIVersion}
	if wrong := r.check(); wrong != nil {
		a.Error = wrong
	} else {
		if r.Deadline != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, *r.Deadline)
			defer cancel()
		}
		a.Workers, err = runner.Run(ctx, r)
		a.Error = toError(err)
		if r.Operation == List && a.Workers == nil {
			a.Workers = []Worker{}
		}
	}
	return json.NewEncoder(out).Encode(a)
}

// check says why a request is not understood; nil: it is.
func (r *Request) check() *Error {
	refuse := func(code, format string, args ...any) *Error {
		return &Error{Code: code, Class: Other, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.APIVersion != APIVersion:
		return refuse("UnknownVersion", "the request is of version %.60q; this program knows %s", r.APIVersion, APIVersion)
	case r.Operation != List && r.Operation != Create && r.Operation != Delete:
		return refuse("UnknownOperation", "the request is to %.60q; this program knows List, Create and Delete", r.Operation)
	case r.Cluster.Name == "":
		return refuse("BadRequest", "the request names no cluster")
	case r.Operation == Create && r.From > r.Desired, r.Operation == Delete && r.From < r.Desired:
		return refuse("BadRequest", "the request is to %s from %d to %d", r.Operation, r.From, r.Desired)
	case r.Operation == Create && r.Size == "":
		return refuse("BadRequest", "the request says no size")
	}
	return nil
}

// toError makes an answer of an error; nil of none.
func toError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.clean()
	}
	return (&Error{Code: "Failed", Class: Other, Message: err.Error()}).clean()
}
