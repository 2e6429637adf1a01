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
	"syscall"
	"time"
)

// pollInterval is the interval at which the rig polls. It is short because a start polls many
// times.
const pollInterval = 20 * time.Millisecond

// process is a child process with its output in a log file.
type process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed when the child has ended
	err     error         // result of Wait; valid after done is closed
}

// launch starts a program in the run's folder. An argument must contain the folder's path, by which
// a later start recognizes processes that this run left behind.
func (r *runDir) launch(name, binary string, args []string) (*process, error) {
	p := &process{name: name, logPath: r.path(name + ".log"), done: make(chan struct{})}
	// Append, because a restart must keep the earlier log.
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own copy

	p.cmd = exec.Command(binary, args...)
	p.cmd.Dir = r.dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A separate HOME hides the user's kubeconfig and kwok configuration.
	p.cmd.Env = []string{"HOME=" + r.dir, "TMPDIR=" + r.dir, "PATH=" + os.Getenv("PATH")}
	p.cmd.SysProcAttr = ChildAttributes()

	started := make(chan error)
	go p.run(r, started)
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// run starts the child and waits for it on one locked OS thread, because Linux sends the
// parent-death signal when the thread that started the child ends, not the process.
func (p *process) run(r *runDir, started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	pidFile := r.path(p.name + pidSuffix)
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(p.cmd.Process.Pid)), 0o600); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		started <- fmt.Errorf("writing its pid file: %w", err)
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
	_ = os.Remove(pidFile)
}

// stop sends SIGTERM, and SIGKILL after stopGrace. It returns an error if the child had ended
// before, or had to be killed.
func (p *process) stop() error {
	select {
	case <-p.done:
		return p.failure("ended before it was stopped")
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return p.failure(fmt.Sprintf("did not end within %s of SIGTERM and was killed", stopGrace))
}

// failure returns an error about an ended child, with the end of its log.
func (p *process) failure(event string) error {
	return fmt.Errorf("%s %s (%w); its log ends with:\n%s", p.name, event, p.err, p.tail())
}

// tail returns the last lines of the log.
func (p *process) tail() string {
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}

// await polls ready until it returns nil. It fails when ctx or the timeout ends, or when one of the
// processes that ready depends on ends. The error contains the last error of ready and the end of
// the first process' log.
func await(ctx context.Context, what string, timeout time.Duration, ready func(context.Context) error, processes ...*process) error {
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
				return fmt.Errorf("waiting for %s: %w", what, p.failure("ended"))
			default:
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			err = fmt.Errorf("waiting for %s: %w; last error: %w", what, context.Cause(ctx), err)
			if len(processes) > 0 {
				err = errors.Join(err, fmt.Errorf("the log of %s ends with:\n%s", processes[0].name, processes[0].tail()))
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
