package provisioner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/go-logr/logr"
)

// drainPipes is how long is waited for what a program started to let go of its output.
const drainPipes = 2 * time.Second

// Program is a Runner that starts a program.
type Program struct {
	// Command is its path and its arguments.
	Command []string
	// Env adds to the environment of this process.
	Env []string
	// Log gets what it writes to standard error.
	Log logr.Logger
}

var _ Runner = (*Program)(nil)

// Run implements Runner. What it did is not known when the error is a *ProgramError; an *Error is
// what the program answered. When ctx ends, the program is killed with all that it started.
func (p *Program) Run(ctx context.Context, r Request) ([]Worker, error) {
	r.APIVersion = APIVersion
	if at, ok := ctx.Deadline(); ok {
		at = at.UTC()
		r.Deadline = &at
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	if len(p.Command) == 0 {
		return nil, broken(NotStarted, nil, "is not named: see --provisioner")
	}
	if ctx.Err() != nil {
		return nil, interrupted(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out := &bounded{most: maxAnswer, stop: stop}
	log := p.Log.WithValues("operation", r.Operation, "cluster", r.Cluster.Name, "id", r.ID)
	said := &lines{log: func(s string) { log.Info("the provisioner says", "line", s) }}
	cmd := exec.CommandContext(ctx, p.Command[0], p.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(body), out, said
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.WaitDelay = drainPipes
	attach(cmd)
	err = onThread(cmd.Run)
	said.end()
	workers, err := judge(ctx, cmd, out, err)
	if err == nil && r.Operation == List && workers == nil {
		// Left out is not none: who believed that would make them all again.
		return nil, broken(Garbled, nil, "answered List without workers")
	}
	return workers, err
}

// judge makes of how a program ended what it answered.
func judge(ctx context.Context, cmd *exec.Cmd, out *bounded, err error) ([]Worker, error) {
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() && ctx.Err() == nil {
		// It ended well, and left something that holds its output: that has nothing to do any more.
		_ = killGroup(cmd)
		err = nil
	}
	switch {
	case out.over:
		return nil, broken(TooLong, nil, "answered more than %d bytes", maxAnswer)
	case err == nil:
		return Parse(out.data.Bytes())
	case ctx.Err() != nil:
		return nil, interrupted(ctx)
	case cmd.ProcessState == nil:
		return nil, broken(NotStarted, err, "can't be started: %v", err)
	}
	// A program may answer an error and end with a status that says so, too.
	if _, answered := Parse(out.data.Bytes()); answered != nil {
		if e, ok := errors.AsType[*Error](answered); ok {
			return nil, e
		}
	}
	return nil, broken(Crashed, err, "ended before it was done: %s; its log says more", cmd.ProcessState)
}

func interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return broken(Late, cause, "was killed, for it took too long: %v", cause)
	}
	return broken(Stopped, cause, "was killed, for the agent ends")
}

// onThread has one thread start a program and wait for it: Linux kills the program when the thread
// ends that started it.
func onThread(run func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- run()
	}()
	return <-done
}

// bounded keeps what is written to it, up to a size.
type bounded struct {
	data bytes.Buffer
	most int
	over bool
	// stop ends who writes too much.
	stop func()
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.data.Len()+len(p) > b.most {
		b.over = true
		b.stop()
		return 0, errors.New("the answer is too long")
	}
	return b.data.Write(p)
}

// Bounds of what is logged of one run.
const (
	maxLine  = 1024
	maxLines = 200
)

// lines hands on what is written to it line by line, each clipped, and no more than so many.
type lines struct {
	log  func(line string)
	rest []byte
	n    int
}

// Write implements io.Writer. It never fails.
func (l *lines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			l.keep(rest)
			break
		}
		l.keep(rest[:i])
		l.end()
		rest = rest[i+1:]
	}
	return len(p), nil
}

func (l *lines) keep(p []byte) { l.rest = append(l.rest, p[:min(len(p), maxLine-len(l.rest))]...) }

// end hands on the line as far as it goes.
func (l *lines) end() {
	text := line(string(bytes.TrimSpace(l.rest)), maxLine)
	l.rest = l.rest[:0]
	if text == "" {
		return
	}
	switch l.n++; {
	case l.n < maxLines:
		l.log(text)
	case l.n == maxLines:
		l.log("… and more, which is left out")
	}
}
