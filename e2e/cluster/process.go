package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pollInterval is the interval of polls. It is short because a start polls many times.
const pollInterval = 20 * time.Millisecond

// Process is a child process with its output in a log file.
type Process struct {
	// Pid is the process ID, and LogPath the path of the log file.
	Pid     int
	LogPath string

	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
	err  error         // result of Wait; valid after done is closed
}

// Launch starts a program in a folder, which is also its HOME. Its log is kept or deleted together
// with the control plane's logs. env is appended to its environment and wins over earlier values. A
// later start kills what this run left behind, if an argument contains the path of the run's
// folder.
func (c *Cluster) Launch(name, binary, dir string, args []string, env ...string) (*Process, error) {
	p := &Process{name: name, LogPath: c.run.path(name + ".log"), done: make(chan struct{})}
	// Append, because a restart must keep the earlier log.
	log, err := os.OpenFile(p.LogPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own copy

	p.cmd = exec.Command(binary, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	// A separate HOME hides the user's kubeconfig and kwok configuration.
	p.cmd.Env = append([]string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}, env...)
	p.cmd.SysProcAttr = ChildAttributes()

	started := make(chan error)
	go p.run(c.run.path(name+pidSuffix), started)
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// run starts the child and waits for it on one locked OS thread, because Linux sends the
// parent-death signal when the thread that started the child ends, not the process.
func (p *Process) run(pidFile string, started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	p.Pid = p.cmd.Process.Pid
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(p.Pid)), 0o600); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		started <- fmt.Errorf("writing its pid file: %w", err)
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
	_ = os.Remove(pidFile)
}

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the end of the process and returns its error: nil for status 0.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Signal sends a signal, such as SIGSTOP.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill sends SIGKILL and waits for the end of the process.
func (p *Process) Kill() { _ = p.kill() } // it may have ended

// kill is Kill with the error for a process that has ended by itself.
func (p *Process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// Stop sends SIGTERM (and SIGCONT, for a stopped process), and SIGKILL after stopGrace. It returns
// the error of the process, or an error if it had to be killed.
func (p *Process) Stop() error {
	_ = p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
		return p.err
	case <-time.After(stopGrace):
	}
	p.Kill()
	return p.Failure(fmt.Sprintf("did not end within %s of SIGTERM and was killed", stopGrace))
}

// stop is Stop with another error: any exit status is right, but not an end before the call.
func (p *Process) stop() error {
	select {
	case <-p.done:
		return p.Failure("ended before it was stopped")
	default:
	}
	var exit *exec.ExitError
	if err := p.Stop(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

// Failure returns an error about an ended process, with the end of its log.
func (p *Process) Failure(event string) error {
	return fmt.Errorf("%s %s (%s); its log ends with:\n%s", p.name, event, p.cmd.ProcessState, p.Tail())
}

// Log returns the output of the process so far.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.LogPath)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data))
}

// Tail returns the last lines of the log.
func (p *Process) Tail() string {
	lines := strings.Split(p.Log(), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// Await polls ready until it returns nil. It fails when ctx or the timeout ends, or when one of the
// processes that ready depends on ends. The error contains the last error of ready and the end of
// the first process' log.
func Await(ctx context.Context, what string, timeout time.Duration, ready func(context.Context) error,
	processes ...*Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("timed out after %s", timeout))
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		for _, p := range processes {
			select {
			case <-p.done:
				return fmt.Errorf("waiting for %s: %w", what, p.Failure("ended"))
			default:
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			err = fmt.Errorf("waiting for %s: %w; last error: %w", what, context.Cause(ctx), err)
			if len(processes) > 0 {
				err = errors.Join(err,
					fmt.Errorf("the log of %s ends with:\n%s", processes[0].name, processes[0].Tail()))
			}
			return err
		}
	}
}

// commandLine returns the command line of a running process, or "" if there is no such process.
func commandLine(pid int) string {
	if runtime.GOOS == "linux" {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			return ""
		}
		return string(bytes.ReplaceAll(data, []byte{0}, []byte(" ")))
	}
	out, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(out)
}
