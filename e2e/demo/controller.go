package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/internal/testrun/layout"
)

const (
	// stopGrace is the time between SIGTERM and SIGKILL.
	stopGrace = time.Minute
	// tailLines is the number of log lines in an error message.
	tailLines = 12
)

// controller is the controller's process.
type controller struct {
	cmd       *exec.Cmd
	healthURL string        // readiness URL
	logPath   string        // path of the log file
	pidPath   string        // path of the pid file, by which a later run finds the process of a killed run
	done      chan struct{} // closed when the process has ended
	err       error         // result of Wait; valid after done is closed
}

// buildController compiles the controller of the checkout, or links the binary that make test has
// compiled. The caller removes temp, the folder for temporary files.
func buildController(ctx context.Context, root, temp, binary string) error {
	if built := os.Getenv(layout.ProgramsVariable); built != "" {
		return os.Symlink(filepath.Join(built, "controller"), binary)
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, "./cmd/controller")
	var output bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, &output, &output
	cmd.Env = append(os.Environ(), tempVariable+"="+temp)
	// A separate process group, so that compilers and linkers are killed with the go command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("go build ./cmd/controller: %w\n%s", err, &output))
	}
	return nil
}

// startController starts the controller with a kubeconfig. dir is the folder of the run. ended is
// called when the process has ended.
func startController(dir, binary, kubeconfig string, ended func(error)) (*controller, error) {
	storage, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	health, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	c := &controller{healthURL: "http://" + health + "/readyz", logPath: filepath.Join(dir, "controller.log"), pidPath: filepath.Join(dir, "controller.pid"), done: make(chan struct{})}
	log, err := os.Create(c.logPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own copy
	c.cmd = exec.Command(binary, "--runtime-namespace="+systemNamespace, "--storage-path="+filepath.Join(dir, "storage"),
		"--storage-addr="+storage, "--metrics-addr=0", "--health-addr="+health,
		"--default-service-account=default", "--log-encoding=console")
	c.cmd.Dir = dir
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
	c.cmd.SysProcAttr = childAttributes()

	started := make(chan error)
	go c.run(started, ended)
	if err := <-started; err != nil {
		<-c.done
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	return c, nil
}

// run starts the child and waits for it on one locked OS thread, because Linux sends the
// parent-death signal when the thread that started the child ends, not the process.
func (c *controller) run(started chan<- error, ended func(error)) {
	defer close(c.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.cmd.Start(); err != nil {
		started <- err
		return
	}
	// A write error matters only if the demo is killed on a system other than Linux.
	_ = os.WriteFile(c.pidPath, []byte(strconv.Itoa(c.cmd.Process.Pid)), 0o600)
	started <- nil
	c.err = c.cmd.Wait()
	_ = os.Remove(c.pidPath)
	ended(fmt.Errorf("the controller ended (%s); its log ends with:\n%s", c.cmd.ProcessState, c.tail()))
}

// healthy returns nil if the controller is ready.
func (c *controller) healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.healthURL, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", c.healthURL, resp.Status)
	}
	return nil
}

// stop sends SIGTERM to the controller, and SIGKILL after stopGrace. It returns nil if the
// controller had ended before, because that error is already reported.
func (c *controller) stop() error {
	select {
	case <-c.done:
		return nil
	default:
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	select {
	case <-c.done:
		if c.err != nil {
			return fmt.Errorf("the controller ended with an error: %w; its log ends with:\n%s", c.err, c.tail())
		}
		return nil
	case <-timer.C:
	}
	_ = c.cmd.Process.Kill()
	<-c.done
	return fmt.Errorf("the controller did not end within %s and was killed; its log ends with:\n%s", stopGrace, c.tail())
}

// tail returns the last lines of the log.
func (c *controller) tail() string {
	data, err := os.ReadFile(c.logPath)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-tailLines):], []byte("\n")))
}
