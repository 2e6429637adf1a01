package renderworker

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ksctl/gitops/stacks"
)

// maxRequest bounds a request: an install has at most 1 MiB, and each ConfigMap
// or Secret that it takes values from as much.
const maxRequest = 256 << 20

// settings are the first frame to a worker.
type settings struct {
	MemoryBytes int64 `json:"memoryBytes"`
	OutputBytes int64 `json:"outputBytes"`
}

// hello is the first frame of a worker: it is ready.
type hello struct {
	// Open says what the worker could not give up; empty when it is confined.
	Open string `json:"open,omitempty"`
}

// reply is what a render came to: a result, or one kind of error.
type reply struct {
	Result *stacks.Result `json:"result,omitempty"`
	// Problems are stacks.Errors. Their causes stay behind: they are values of
	// another process.
	Problems stacks.Errors `json:"problems,omitempty"`
	// Encrypted names what has to be decrypted first.
	Encrypted *stacks.EncryptedError `json:"encrypted,omitempty"`
	// Failure is an error that is not the stack's.
	Failure string `json:"failure,omitempty"`
}

// errFrame says that the other side does not speak as agreed.
var errFrame = errors.New("not a frame of the render protocol")

// writeFrame writes the length of a body, and the body.
func writeFrame(w io.Writer, body []byte) error {
	if err := binary.Write(w, binary.BigEndian, uint32(len(body))); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

// readFrame reads a body of at most limit bytes.
func readFrame(r io.Reader, limit int64) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > limit {
		return nil, fmt.Errorf("%w: it has %d bytes, and %d are allowed", errFrame, n, limit)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("%w: it breaks off", errFrame)
	}
	return body, nil
}

func send(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFrame(w, body)
}

func receive(r io.Reader, limit int64, into any) error {
	body, err := readFrame(r, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		// What is wrong with it may repeat what is in it.
		return fmt.Errorf("%w: it is not the JSON that was expected", errFrame)
	}
	return nil
}

// outcome is what the caller of a render gets.
func (r *reply) outcome() (stacks.Result, error) {
	switch {
	case len(r.Problems) > 0:
		for _, p := range r.Problems {
			if p == nil {
				return stacks.Result{}, fmt.Errorf("%w: it has an empty problem", errFrame)
			}
		}
		return stacks.Result{}, r.Problems
	case r.Encrypted != nil && len(r.Encrypted.Files) > 0:
		return stacks.Result{}, r.Encrypted
	case r.Failure != "":
		return stacks.Result{}, errors.New(r.Failure)
	case r.Result == nil:
		return stacks.Result{}, fmt.Errorf("%w: it has neither a result nor an error", errFrame)
	}
	return *r.Result, nil
}

// replyTo is what is sent of an outcome, in at most so many bytes.
func replyTo(stack string, res stacks.Result, err error, limit int64) ([]byte, error) {
	var r reply
	if encrypted := (*stacks.EncryptedError)(nil); errors.As(err, &encrypted) {
		r.Encrypted = encrypted
	} else if problems := (stacks.Errors)(nil); errors.As(err, &problems) {
		r.Problems = problems
	} else if one := (*stacks.Error)(nil); errors.As(err, &one) {
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
		return json.Marshal(reply{Problems: stacks.Errors{tooMuch(stack, int64(len(body)), limit)}})
	}
	return body, nil
}

// tooMuch is the stack's fault: it comes to the same each time.
func tooMuch(stack string, have, limit int64) *stacks.Error {
	return &stacks.Error{Stack: stack,
		Message: fmt.Sprintf("what it renders has %d bytes, and %d are allowed (--render-max-output-bytes)", have, limit)}
}
