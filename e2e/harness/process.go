package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/programs"
)

// LeaderElectionFlags are the flags of a replica with leader election. The lease is long enough for
// a machine that stalls, and the retry period short, so that another replica soon takes over.
var LeaderElectionFlags = []string{"--enable-leader-election", "--leader-election-lease-duration=30s", "--leader-election-renew-deadline=24s",
	"--leader-election-retry-period=500ms"}

// Process is a program that runs as a child process, such as the shipped controller.
type Process struct {
	// Pid is the process ID.
	Pid int

	logPath        string // path of the log file
	healthURL      string // URL that returns status 200 when the program is ready
	metricsAddress string // address of the metrics server
	process        *os.Process
	done           chan struct{} // closed when the process has ended
	err            error         // result of Wait; valid after done is closed
	once           sync.Once
}

// BuildController returns the path of the controller binary. The first call builds it.
func (h *Harness) BuildController(ctx context.Context) (string, error) {
	h.built.Do(func() {
		if h.ReleaseBuild {
			h.binary = filepath.Join(h.dir, "shipped-"+programs.Controller)
			h.buildErr = programs.BuildRelease(ctx, h.binary, programs.Controller)
			return
		}
		h.binary, h.buildErr = programs.Build(ctx, h.dir, programs.Controller)
	})
	return h.binary, h.buildErr
}

// BuildSOPSWorker returns the path of the SOPS worker, for --sops-worker. The first call builds it.
func (h *Harness) BuildSOPSWorker(ctx context.Context) (string, error) {
	h.worker.Do(func() { h.workerPath, h.workerErr = programs.Build(ctx, h.dir, programs.SOPSWorker) })
	return h.workerPath, h.workerErr
}

// BuildAgent returns the path of the agent, which creates machines. The first call builds it.
func (h *Harness) BuildAgent(ctx context.Context) (string, error) {
	h.agent.Do(func() { h.agentPath, h.agentErr = programs.Build(ctx, h.dir, programs.Agent) })
	return h.agentPath, h.agentErr
}

// StartProcess starts the controller as a child process, with additional flags. The configuration
// is [Harness.Config], or a copy whose address is a proxy. StartProcess does not wait until the
// controller is ready: see [Process.WaitHealthy].
func (h *Harness) StartProcess(ctx context.Context, config *rest.Config, flags ...string) (*Process, error) {
	binary, err := h.BuildController(ctx)
	if err != nil {
		return nil, err
	}
	storage, err := os.MkdirTemp(h.dir, "storage-")
	if err != nil {
		return nil, err
	}
	addr, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	defaults := []string{"--runtime-namespace=" + SystemNamespace, "--storage-addr=" + addr, "--storage-path=" + storage}
	return h.StartProgram(binary, config, append(defaults, flags...)...)
}

// StartProgram starts any controller with the flags --metrics-addr and --health-addr, such as a
// Flux controller, in the same way as [Harness.StartProcess].
func (h *Harness) StartProgram(binary string, config *rest.Config, flags ...string) (*Process, error) {
	health, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	metrics, err := cluster.FreeAddress()
	if err != nil {
		return nil, err
	}
	p, err := h.RunProgram(binary, config, []string{"RUNTIME_NAMESPACE=" + SystemNamespace},
		append([]string{"--metrics-addr=" + metrics, "--health-addr=" + health}, flags...)...)
	if err != nil {
		return nil, err
	}
	p.SetHealthURL("http://" + health + "/readyz")
	p.metricsAddress = metrics
	return p, nil
}

// RunProgram starts any program with a separate HOME, and with KUBECONFIG set to a file with the
// configuration. env is appended to its environment and wins over earlier values. The caller sets
// the health URL with [Process.SetHealthURL].
func (h *Harness) RunProgram(binary string, config *rest.Config, env []string, args ...string) (*Process, error) {
	dir, err := os.MkdirTemp(h.dir, "process-")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := h.ControlPlane.WriteKubeconfig(filepath.Base(dir), config)
	if err != nil {
		return nil, err
	}
	// In the same folder as the control plane's logs, which are kept after a failed run.
	p := &Process{logPath: h.ControlPlane.LogFile(filepath.Base(binary) + "-" + filepath.Base(dir)), done: make(chan struct{})}
	log, err := os.Create(p.logPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own copy
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append([]string{"KUBECONFIG=" + kubeconfig, "HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}, env...)
	cmd.SysProcAttr = cluster.ChildAttributes()
	started := make(chan error)
	go p.run(cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", filepath.Base(binary), err)
	}
	return p, nil
}

// run starts the child and waits for it on one locked OS thread, for the same reason as the run
// method of package cluster's processes.
func (p *Process) run(cmd *exec.Cmd, started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.process, p.Pid = cmd.Process, cmd.Process.Pid
	started <- nil
	p.err = cmd.Wait()
}

// SetHealthURL sets the URL that returns status 200 when the program is ready.
func (p *Process) SetHealthURL(url string) { p.healthURL = url }

// WaitHealthy waits until the health URL returns status 200, for at most four minutes.
func (p *Process) WaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	for {
		if _, err := httpGet(ctx, p.healthURL); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d is not healthy: %w; its log:\n%s", p.Pid, ctx.Err(), p.Log())
		case <-p.done:
			return fmt.Errorf("process %d ended before it was healthy: %w; its log:\n%s", p.Pid, p.err, p.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Metrics returns the Prometheus metrics of the process.
func (p *Process) Metrics(ctx context.Context) (string, error) {
	return httpGet(ctx, "http://"+p.metricsAddress+"/metrics")
}

// MetricsAddress returns the address of the metrics server.
func (p *Process) MetricsAddress() string { return p.metricsAddress }

func httpGet(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK && err == nil {
		err = fmt.Errorf("%s: %s", url, res.Status)
	}
	return string(body), errors.Join(err, res.Body.Close())
}

// Log returns the output of the process so far.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data))
}

// Signal sends a signal, such as SIGSTOP.
func (p *Process) Signal(s syscall.Signal) error { return p.process.Signal(s) }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the end of the process and returns its error: nil for status 0.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Kill sends SIGKILL and waits for the end of the process.
func (p *Process) Kill() {
	p.once.Do(func() { _ = p.process.Kill() })
	<-p.done
}

// Stop sends SIGTERM (and SIGCONT, for a stopped process) and returns the error of the process.
// After a minute it kills the process and returns an error.
func (p *Process) Stop() error {
	p.once.Do(func() {
		_ = p.process.Signal(syscall.SIGTERM)
		_ = p.process.Signal(syscall.SIGCONT)
	})
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		_ = p.process.Kill()
		<-p.done
		return fmt.Errorf("process %d did not end within a minute of SIGTERM; its log:\n%s", p.Pid, p.Log())
	}
	return p.err
}
