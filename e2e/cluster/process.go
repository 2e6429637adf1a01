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

// pollInterval is how often the rig asks whether something has happened. It is
// short because a start consists of many such waits.
const pollInterval = 20 * time.Millisecond

// process is a child of this one with its output in a log file.
type process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{} // closed when the child has ended
	err     error         // how it ended; read after done
}

// launch starts a program in the run folder. Some argument must hold the
// folder's path: that is how a later start recognises what this one left.
func (r *runDir) launch(name, binary string, args []string) (*process, error) {
	p := &process{name: name, logPath: r.path(name + ".log"), done: make(chan struct{})}
	// Append: after a restart the earlier log is still of interest.
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own copy

	p.cmd = exec.Command(binary, args...)
	p.cmd.Dir = r.dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A home of its own keeps the user's kubeconfig and kwok settings out.
	p.cmd.Env = []string{"HOME=" + r.dir, "TMPDIR=" + r.dir, "PATH=" + os.Getenv("PATH")}
	p.cmd.SysProcAttr = ChildAttributes()

	started := make(chan error)
	go p.run(r, started)
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// run starts the child and waits for it on one thread that it keeps: Linux
// sends the parent-death signal when the starting thread ends, not the process.
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
		started <- fmt.Errorf("write its pid file: %w", err)
		return
	}
	started <- nil
	p.err = p.cmd.Wait()
	_ = os.Remove(pidFile)
}

// stop asks the child to end, and makes it end after stopGrace. It returns an
// error when the child had ended before it was asked, or had to be killed.
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

// failure describes an ended child, with the end of its log.
func (p *process) failure(what string) error {
	return fmt.Errorf("%s %s (%w); its log ends with:\n%s", p.name, what, p.err, p.tail())
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

// await calls ready until it returns nil. It gives up when ctx or the timeout
// ends, or when one of the processes that ready depends on has ended; the error
// carries ready's last answer and the end of the first process' log.
func await(ctx context.Context, what string, timeout time.Duration, ready func(context.Context) error, on ...*process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not within %s", timeout))
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		for _, p := range on {
			select {
			case <-p.done:
				return fmt.Errorf("wait for %s: %w", what, p.failure("ended"))
			default:
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			err = fmt.Errorf("wait for %s: %w; last: %w", what, context.Cause(ctx), err)
			if len(on) > 0 {
				err = errors.Join(err, fmt.Errorf("the log of %s ends with:\n%s", on[0].name, on[0].tail()))
			}
			return err
		}
	}
}

// commandLine returns the command line of a running process, or "" when there
// is none.
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
