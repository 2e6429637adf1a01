package renderworker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ksctl/gitops/stacks"
)

// maxRequestBytes limits the size of a request. A KsctlInstall has at most 1 MiB, and so has each
// ConfigMap and Secret of its valuesFrom.
const maxRequestBytes = 256 << 20

// settings is the first message to a worker.
type settings struct {
	MemoryBytes int64 `json:"memoryBytes"`
	OutputBytes int64 `json:"outputBytes"`
}

// chartCacheBytes returns the size of the cache for loaded charts: an eighth of the memory at most.
func (s settings) chartCacheBytes() int64 { return min(stacks.DefaultChartCacheBytes, s.MemoryBytes/8) }

// readyMessage is the first message from a worker: it is ready to render.
type readyMessage struct {
	// Unenforced describes the restrictions that the worker could not apply; empty if the sandbox
	// is complete.
	Unenforced string `json:"open,omitempty"`
}

// reply is the outcome of a render: a result, or one kind of error.
type reply struct {
	Result *stacks.Result `json:"result,omitempty"`
	// Problems are errors in the stack. Their wrapped causes are not transferred.
	Problems stacks.Errors `json:"problems,omitempty"`
	// Encrypted lists the files and values that have to be decrypted before the render.
	Encrypted *stacks.EncryptedError `json:"encrypted,omitempty"`
	// Missing lists the charts that have to be fetched before the render.
	Missing *stacks.MissingChartsError `json:"missing,omitempty"`
	// Facts lists the facts of the cluster that the stack reads, if the request has others.
	Facts *stacks.MissingFactsError `json:"facts,omitempty"`
	// Failure is the message of an error that the stack did not cause.
	Failure string `json:"failure,omitempty"`
}

// errInvalidFrame is returned for data that violates the protocol between the pool and its workers.
var errInvalidFrame = errors.New("invalid frame of the render protocol")

// writeFrame writes the length of body, and body.
func writeFrame(w io.Writer, body []byte) error {
	if err := binary.Write(w, binary.BigEndian, uint32(len(body))); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

// writeMessage writes v as a frame of JSON.
func writeMessage(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFrame(w, body)
}

// readMessage reads a frame of JSON into the value that into points to. A body of more than limit
// bytes is an error.
func readMessage(r io.Reader, limit int64, into any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > limit {
		return fmt.Errorf("%w: %d bytes exceed the limit of %d", errInvalidFrame, n, limit)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("%w: the body is truncated", errInvalidFrame)
	}
	if json.Unmarshal(body, into) != nil {
		// The JSON error is withheld: it may quote the content, which can hold secrets.
		return fmt.Errorf("%w: unexpected JSON", errInvalidFrame)
	}
	return nil
}

// toResult returns the result of the render, or its error with the type that it had in the worker.
func (r *reply) toResult() (stacks.Result, error) {
	switch {
	case slices.Contains(r.Problems, nil):
		return stacks.Result{}, fmt.Errorf("%w: a problem is null", errInvalidFrame)
	case len(r.Problems) > 0:
		return stacks.Result{}, r.Problems
	case r.Encrypted != nil && len(r.Encrypted.Files) > 0:
		return stacks.Result{}, r.Encrypted
	case r.Missing != nil && len(r.Missing.Charts) > 0:
		return stacks.Result{}, r.Missing
	case r.Facts != nil:
		return stacks.Result{}, r.Facts
	case r.Failure != "":
		return stacks.Result{}, errors.New(r.Failure)
	case r.Result == nil:
		return stacks.Result{}, fmt.Errorf("%w: the reply has neither a result nor an error", errInvalidFrame)
	}
	return *r.Result, nil
}

// encodeReply encodes the outcome of a render. If that exceeds limit bytes, it encodes an error
// about the size instead.
func encodeReply(stack string, res stacks.Result, err error, limit int64) ([]byte, error) {
	var r reply
	if encrypted, ok := errors.AsType[*stacks.EncryptedError](err); ok {
		r.Encrypted = encrypted
	} else if missing, ok := errors.AsType[*stacks.MissingChartsError](err); ok {
		r.Missing = missing
	} else if facts, ok := errors.AsType[*stacks.MissingFactsError](err); ok {
		r.Facts = facts
	} else if problems, ok := errors.AsType[stacks.Errors](err); ok {
		r.Problems = problems
	} else if one, ok := errors.AsType[*stacks.Error](err); ok {
		r.Problems = stacks.Errors{one}
	} else if err != nil {
		r.Failure = err.Error()
	} else {
		r.Result = &res
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return json.Marshal(reply{Problems: stacks.Errors{outputTooLargeError(stack, int64(len(body)), limit)}})
	}
	return body, nil
}

// outputTooLargeError returns the error for output that exceeds the limit. It is an error in the
// stack: another attempt gives the same output.
func outputTooLargeError(stack string, have, limit int64) *stacks.Error {
	return &stacks.Error{Stack: stack,
		Message: fmt.Sprintf("the rendered output has %d bytes and exceeds the limit of %d; increase "+
			"--render-max-output-bytes or split the stack", have, limit)}
}
