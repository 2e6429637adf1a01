package sopsworker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ksctl/gitops/stacks/sops"
)

// ProgramName is the file name of the worker program.
const ProgramName = "sops-worker"

const (
	// timeoutPerMiB is added to the timeout for each MiB of the file. A CPU needs a second for the
	// largest file, but a pod may have only a small share of a CPU.
	timeoutPerMiB = 30 * time.Second
	// maxProcesses is the maximum number of concurrent worker processes.
	maxProcesses = 2
)

// Client decrypts and encrypts files in worker processes. It is safe for concurrent use.
type Client struct {
	path string
	// minTimeout is the timeout of an empty file.
	minTimeout time.Duration
	// memoryBytes is the memory limit of a worker process. It is enforced on Linux only.
	memoryBytes int64
	// slots holds one element per running worker process.
	slots   chan struct{}
	backoff timeoutBackoff
}

// New returns a client that runs the worker program at a path; "" is the program in the folder of
// this program. It starts no process.
func New(path string) *Client {
	if path == "" {
		if own, err := os.Executable(); err == nil {
			path = filepath.Join(filepath.Dir(own), ProgramName)
		}
	}
	return &Client{path: path, minTimeout: time.Minute, memoryBytes: 256 << 20,
		slots:   make(chan struct{}, maxProcesses),
		backoff: timeoutBackoff{now: time.Now, entries: map[requestHash]backoffEntry{}}}
}

// response is the response of a worker process: either the data or an error.
type response struct {
	Data  []byte      `json:"data,omitempty"`
	Error *sops.Error `json:"error,omitempty"`
}

// maxResponseBytes limits the size of a response. It has room for the largest file in base64.
const maxResponseBytes = 32 << 20

var (
	_ sops.Decrypter = (*Client)(nil).Decrypt
	_ sops.Encrypter = (*Client)(nil).Encrypt
)

// Decrypt decrypts a file in a worker process. Every error is a *sops.Error.
func (c *Client) Decrypt(ctx context.Context, r sops.Request) ([]byte, error) {
	return c.call(ctx, "decrypt", request{Decrypt: &r}, len(r.Data))
}

// Encrypt encrypts a file in a worker process. Every error is a *sops.Error.
func (c *Client) Encrypt(ctx context.Context, r sops.EncryptRequest) ([]byte, error) {
	return c.call(ctx, "encrypt", request{Encrypt: &r}, len(r.Data))
}

// maxTimedBytes is the size above which the timeout does not grow: larger files are rejected
// anyway.
const maxTimedBytes = 5 << 20

// timeout returns the timeout for a file of the given size in bytes.
func (c *Client) timeout(size int) time.Duration {
	return c.minTimeout + time.Duration(min(size, maxTimedBytes))*timeoutPerMiB/(1<<20)
}

// call decrypts or encrypts one file, unless the same request timed out before and is backing off.
// verb is for messages, and size is the size of the file in bytes.
func (c *Client) call(ctx context.Context, verb string, r request, size int) ([]byte, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, interruptedError(ctx, verb)
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, &sops.Error{Reason: sops.InternalFailure, Message: "encoding the request failed"}
	}
	id := sha256.Sum256(body)
	if err := c.backoff.check(id, verb); err != nil {
		return nil, err
	}
	began := time.Now()
	timeout := c.timeout(size)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout,
		fmt.Errorf("it took longer than the timeout of %s", timeout.Round(time.Millisecond)))
	defer cancel()
	data, err := c.run(ctx, verb, body)
	switch {
	case err == nil:
		c.backoff.reset(id)
	// the timeout above, or the caller's deadline if it was at least as long
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(began) >= c.minTimeout:
		c.backoff.record(id)
	}
	return data, err
}

// run starts a worker process for one request and returns its response.
func (c *Client) run(ctx context.Context, verb string, body []byte) ([]byte, error) {
	out := &limitedBuffer{}
	cmd := exec.CommandContext(ctx, c.path)
	cmd.Stdin, cmd.Stdout = bytes.NewReader(body), out
	// The process gets no other environment. This variable makes its garbage collector work harder
	// before it reaches the memory limit.
	cmd.Env = []string{fmt.Sprintf("GOMEMLIMIT=%d", c.memoryBytes/8*7)}
	cmd.WaitDelay = 5 * time.Second
	killWithParent(cmd)
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return nil, interruptedError(ctx, verb)
		}
		return nil, c.startError(err, verb)
	}
	limitProcess(cmd.Process.Pid, c.memoryBytes)
	err := cmd.Wait()
	if ctx.Err() != nil {
		return nil, interruptedError(ctx, verb)
	}
	var a response
	if err != nil || json.Unmarshal(out.data.Bytes(), &a) != nil {
		// The output of the process is not reported: it may contain secrets.
		return nil, &sops.Error{Reason: sops.Unavailable,
			Message: fmt.Sprintf("the %sion worker exited without a valid response: %s", verb, cmd.ProcessState)}
	}
	if a.Error != nil {
		return nil, a.Error
	}
	return a.Data, nil
}

// interruptedError returns the error for a request whose context is done.
func interruptedError(ctx context.Context, verb string) error {
	err := context.Cause(ctx)
	return &sops.Error{Reason: sops.Interrupted, Message: verb + "ion was interrupted: " + err.Error(), Err: err}
}

// startError returns the error for a worker process that could not be started.
func (c *Client) startError(err error, verb string) error {
	message := fmt.Sprintf("the %sion worker %s cannot be started", verb, c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		message += ": no such file; install the program, which is part of each release, or set --sops-worker"
	case errors.Is(err, fs.ErrPermission):
		message += ": permission denied"
	}
	return &sops.Error{Reason: sops.Unavailable, Message: message}
}

// limitedBuffer is a buffer that fails writes beyond maxResponseBytes, which fails exec.Cmd.Wait.
type limitedBuffer struct{ data bytes.Buffer }

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.data.Len()+len(p) > maxResponseBytes {
		return 0, errors.New("the response is too large")
	}
	return b.data.Write(p)
}
