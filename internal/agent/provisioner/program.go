package provisioner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/go-logr/logr"
)

// outputWaitDelay is how long to wait for child processes to close the output after the program has
// exited.
const outputWaitDelay = 2 * time.Second

// Program is a Runner that starts a program for each request.
type Program struct {
	// Command is the path of the program, which is required, and its arguments.
	Command []string
	// Log receives the standard error output of the program.
	Log logr.Logger
}

// Run implements Runner. An *Error is the error of the program's response. After any other error
// the effect of the request is unknown. When ctx ends, the program and its child processes are
// killed.
func (p *Program) Run(ctx context.Context, r Request) ([]Worker, error) {
	r.APIVersion = APIVersion
	if deadline, ok := ctx.Deadline(); ok {
		deadline = deadline.UTC()
		r.Deadline = &deadline
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encoding the request: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	out := &limitedBuffer{kill: stop}
	log := p.Log.WithValues("operation", r.Operation, "cluster", r.Cluster.Name, "id", r.ID)
	stderr := &lineWriter{log: func(s string) { log.Info("provisioner output", "line", s) }}
	cmd := exec.CommandContext(ctx, p.Command[0], p.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(body), out, stderr
	cmd.WaitDelay = outputWaitDelay
	configureProcess(cmd)
	err = runOnLockedThread(cmd.Run)
	stderr.flush()
	workers, err := interpretExit(ctx, cmd, out, err)
	if err == nil && r.Operation == List && workers == nil {
		// A missing list is not an empty one: taking it for empty would create all machines again.
		return nil, violation("returned no workers for List; an empty cluster needs an empty list")
	}
	return workers, err
}

// interpretExit returns the response of a program that has exited. err is the result of running it.
func interpretExit(ctx context.Context, cmd *exec.Cmd, out *limitedBuffer, err error) ([]Worker, error) {
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() && ctx.Err() == nil {
		// The program succeeded, but a child process still holds its output open. The child has no
		// purpose anymore.
		_ = killGroup(cmd)
		err = nil
	}
	switch {
	case out.exceeded:
		return nil, violation("returned more than %d bytes", maxResponseBytes)
	case err == nil:
		return ParseResponse(out.data.Bytes())
	case ctx.Err() != nil:
		return nil, interruptedError(ctx)
	case cmd.ProcessState == nil:
		return nil, violation("can't be started: %w", err)
	}
	// A program may return an error in its response and also exit with a failure status.
	_, parseErr := ParseResponse(out.data.Bytes())
	if e, ok := errors.AsType[*Error](parseErr); ok {
		return nil, e
	}
	return nil, violation("failed without a response: %s; see the agent's log for its output", cmd.ProcessState)
}

func interruptedError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return violation("was killed at its deadline: %w", context.Cause(ctx))
	}
	return violation("was killed because the agent shuts down")
}

// runOnLockedThread calls run on one OS thread until it returns. Linux kills the program when the
// thread that started it exits, because of Pdeathsig.
func runOnLockedThread(run func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- run()
	}()
	return <-done
}

// limitedBuffer is a buffer for a response, of at most maxResponseBytes.
type limitedBuffer struct {
	data     bytes.Buffer
	exceeded bool
	// kill ends the program that writes when the limit is exceeded.
	kill func()
}

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.data.Len()+len(p) > maxResponseBytes {
		b.exceeded = true
		b.kill()
		return 0, errors.New("response exceeds the size limit")
	}
	return b.data.Write(p)
}

// Limits of the log output of one run: characters of a line, and lines.
const (
	maxLine  = 1024
	maxLines = 200
)

// lineWriter passes its input to log line by line. It shortens long lines to maxLine, and omits
// lines after maxLines.
type lineWriter struct {
	log     func(line string)
	partial []byte
	logged  int
}

// Write implements io.Writer. It never fails.
func (l *lineWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			l.appendPartial(rest)
			break
		}
		l.appendPartial(rest[:i])
		l.flush()
		rest = rest[i+1:]
	}
	return len(p), nil
}

func (l *lineWriter) appendPartial(p []byte) {
	l.partial = append(l.partial, p[:min(len(p), maxLine-len(l.partial))]...)
}

// flush logs the current line, even if it is incomplete.
func (l *lineWriter) flush() {
	text := oneLine(string(bytes.TrimSpace(l.partial)), maxLine)
	l.partial = l.partial[:0]
	if text == "" {
		return
	}
	switch l.logged++; {
	case l.logged < maxLines:
		l.log(text)
	case l.logged == maxLines:
		l.log("further output is omitted")
	}
}
