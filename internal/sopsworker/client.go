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

// Program is the name of the program.
const Program = "sops-worker"

// Options of a Client. Zero fields take the defaults.
type Options struct {
	// Path of the program; beside this program's own when empty.
	Path string
	// Timeout of one file, a minute when zero, and TimeoutPerMiB that it has besides; half a minute
	// when zero. A CPU takes a second for the largest file, and a pod may have a small part of one.
	Timeout, TimeoutPerMiB time.Duration
	// MemoryBytes that the program may have; 256 MiB when zero. They are bounded on Linux only.
	MemoryBytes int64
	// AtATime is how many files are worked on at a time; 2 when zero.
	AtATime int
}

// Client has files decrypted and encrypted.
type Client struct {
	opts Options
	// slots has room for those that are at work.
	slots chan struct{}
	late  lateness
}

// New returns a client. It starts nothing.
func New(o Options) *Client {
	if o.Path == "" {
		if own, err := os.Executable(); err == nil {
			o.Path = filepath.Join(filepath.Dir(own), Program)
		}
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.TimeoutPerMiB == 0 {
		o.TimeoutPerMiB = 30 * time.Second
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 256 << 20
	}
	if o.AtATime == 0 {
		o.AtATime = 2
	}
	return &Client{opts: o, slots: make(chan struct{}, o.AtATime), late: lateness{now: time.Now, files: map[identity]delay{}}}
}

// answer of the program: one of the two.
type answer struct {
	Data  []byte      `json:"data,omitempty"`
	Error *sops.Error `json:"error,omitempty"`
}

// maxAnswer is the most that is read of an answer: a file of the largest size, in base64.
const maxAnswer = 32 << 20

var (
	_ sops.Decrypter = (*Client)(nil).Decrypt
	_ sops.Encrypter = (*Client)(nil).Encrypt
)

// Decrypt decrypts a file. Every error is a *sops.Error.
func (c *Client) Decrypt(ctx context.Context, r sops.Request) ([]byte, error) {
	return c.ask(ctx, "decrypt", request{Decrypt: &r}, len(r.Data))
}

// Encrypt encrypts a file. Every error is a *sops.Error.
func (c *Client) Encrypt(ctx context.Context, r sops.EncryptRequest) ([]byte, error) {
	return c.ask(ctx, "encrypt", request{Encrypt: &r}, len(r.Data))
}

// maxTimed is the size of the largest file that is worked on: more gets no more time.
const maxTimed = 5 << 20

// timeout of a file of a size.
func (c *Client) timeout(size int) time.Duration {
	return c.opts.Timeout + time.Duration(min(size, maxTimed))*c.opts.TimeoutPerMiB/(1<<20)
}

// ask has the program do something with one file of a size, unless that was late and has to wait.
func (c *Client) ask(ctx context.Context, verb string, r request, size int) ([]byte, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return nil, interrupted(ctx, verb)
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, &sops.Error{Reason: sops.Broken, Message: "the request can't be written"}
	}
	id := sha256.Sum256(body)
	if err := c.late.refuse(id, verb); err != nil {
		return nil, err
	}
	began := time.Now()
	timeout := c.timeout(size)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%sing takes longer than %s", verb, timeout.Round(time.Millisecond)))
	defer cancel()
	data, err := c.run(ctx, verb, body)
	switch {
	case err == nil:
		c.late.remove(id)
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(began) >= c.opts.Timeout: // ours, or that of who asks
		c.late.add(id)
	}
	return data, err
}

// run runs the program for one request.
func (c *Client) run(ctx context.Context, verb string, body []byte) ([]byte, error) {
	out := &bounded{most: maxAnswer}
	cmd := exec.CommandContext(ctx, c.opts.Path)
	cmd.Stdin, cmd.Stdout = bytes.NewReader(body), out
	// Nothing of this process' own. It collects garbage before it meets the bound.
	cmd.Env = []string{fmt.Sprintf("GOMEMLIMIT=%d", c.opts.MemoryBytes/8*7)}
	cmd.WaitDelay = 5 * time.Second
	attach(cmd)
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return nil, interrupted(ctx, verb)
		}
		return nil, c.notStarted(err, verb)
	}
	bound(cmd.Process.Pid, c.opts.MemoryBytes)
	err := cmd.Wait()
	if ctx.Err() != nil {
		return nil, interrupted(ctx, verb)
	}
	var a answer
	if err != nil || out.over || json.Unmarshal(out.data.Bytes(), &a) != nil {
		// What it wrote itself could hold anything.
		return nil, &sops.Error{Reason: sops.Unavailable, Message: fmt.Sprintf("the program that %ss ended before it was done: %s", verb, cmd.ProcessState)}
	}
	if a.Error != nil {
		return nil, a.Error
	}
	return a.Data, nil
}

func interrupted(ctx context.Context, verb string) error {
	err := context.Cause(ctx)
	return &sops.Error{Reason: sops.Interrupted, Message: verb + "ing was interrupted: " + err.Error(), Err: err}
}

func (c *Client) notStarted(err error, verb string) error {
	message := fmt.Sprintf("the program that %ss (%s) can't be started", verb, c.opts.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		message = fmt.Sprintf("the program that %ss is not there: %s; it is part of each release, see --sops-worker", verb, c.opts.Path)
	case errors.Is(err, fs.ErrPermission):
		message += ": it may not be run"
	}
	return &sops.Error{Reason: sops.Unavailable, Message: message}
}

// bounded keeps what is written to it, up to a size.
type bounded struct {
	data bytes.Buffer
	most int
	over bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.data.Len()+len(p) > b.most {
		b.over = true
		return 0, errors.New("the answer is too long")
	}
	return b.data.Write(p)
}
