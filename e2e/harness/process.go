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

// Elected are the flags of a replica among several: a machine that stalls does not lose
// such a lease, and it is soon another's when its holder is gone.
var Elected = []string{"--enable-leader-election", "--leader-election-lease-duration=30s", "--leader-election-renew-deadline=24s",
	"--leader-election-retry-period=500ms"}

// Process is the controller as it is shipped: a program of its own.
type Process struct {
	// Pid of the program.
	Pid int

	log     string
	health  string // URL that answers when it is of use
	metrics string // address
	process *os.Process
	done    chan struct{}
	err     error // how it ended; read after done
	once    sync.Once
}

// Build returns the path of the controller, built at the first call.
func (h *Harness) Build(ctx context.Context) (string, error) {
	h.built.Do(func() {
		if h.Shipped {
			h.binary = filepath.Join(h.dir, "shipped-"+programs.Controller)
			h.buildErr = programs.BuildRelease(ctx, h.binary, programs.Controller)
			return
		}
		h.binary, h.buildErr = programs.Build(ctx, h.dir, programs.Controller)
	})
	return h.binary, h.buildErr
}

// SOPSWorker returns the path of the program that decrypts, for --sops-worker.
func (h *Harness) SOPSWorker(ctx context.Context) (string, error) {
	h.worker.Do(func() { h.workerPath, h.workerErr = programs.Build(ctx, h.dir, programs.SOPSWorker) })
	return h.workerPath, h.workerErr
}

// Agent returns the path of the program that makes machines.
func (h *Harness) Agent(ctx context.Context) (string, error) {
	h.agent.Do(func() { h.agentPath, h.agentErr = programs.Build(ctx, h.dir, programs.Agent) })
	return h.agentPath, h.agentErr
}

// StartProcess runs the controller as a process, with what a configuration
// allows ([Harness.Config], or that on its way through something else) and flags
// of the suite's. It does not wait until the process is of use: see [Process.Healthy].
func (h *Harness) StartProcess(ctx context.Context, config *rest.Config, flags ...string) (*Process, error) {
	binary, err := h.Build(ctx)
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

// StartProgram runs any controller that takes --metrics-addr and --health-addr,
// as Flux' do, as [Harness.StartProcess] runs ours.
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
	p.HealthyAt("http://" + health + "/readyz")
	p.metrics = metrics
	return p, nil
}

// RunProgram runs any program with a home of its own and, in KUBECONFIG, what a
// configuration allows. env adds to its environment, and what is said last counts.
// [Process.HealthyAt] says where it tells that it is of use.
func (h *Harness) RunProgram(binary string, config *rest.Config, env []string, args ...string) (*Process, error) {
	dir, err := os.MkdirTemp(h.dir, "process-")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := h.Plane.WriteKubeconfig(filepath.Base(dir), config)
	if err != nil {
		return nil, err
	}
	// With the logs of the control plane, which outlive a failed run.
	p := &Process{log: h.Plane.LogFile(filepath.Base(binary) + "-" + filepath.Base(dir)), done: make(chan struct{})}
	log, err := os.Create(p.log)
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

// run waits for the child on the thread that started it and that it keeps: see
// the control plane's processes.
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

// HealthyAt says at which URL the program answers with status 200 when it is of use.
func (p *Process) HealthyAt(url string) { p.health = url }

// Healthy waits until the program says that it is of use.
func (p *Process) Healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	for {
		if _, err := ask(ctx, p.health); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the controller is not healthy: %w; its log:\n%s", ctx.Err(), p.Log())
		case <-p.done:
			return fmt.Errorf("the controller ended: %w; its log:\n%s", p.err, p.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Metrics are what the controller serves for Prometheus.
func (p *Process) Metrics(ctx context.Context) (string, error) {
	return ask(ctx, "http://"+p.metrics+"/metrics")
}

// MetricsAddress is where it serves them.
func (p *Process) MetricsAddress() string { return p.metrics }

func ask(ctx context.Context, url string) (string, error) {
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

// Log is what the controller wrote so far.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data))
}

// Signal sends a signal, such as SIGSTOP.
func (p *Process) Signal(s syscall.Signal) error { return p.process.Signal(s) }

// Done is closed when the process has ended; Err says how.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process ended: nil for status 0. It waits for that.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Kill ends the process at once, and returns when it is gone.
func (p *Process) Kill() {
	p.once.Do(func() { _ = p.process.Kill() })
	<-p.done
}

// Stop asks the process to end, and returns how it did; one that does not within
// a minute is killed.
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
		return fmt.Errorf("the controller did not end within a minute of SIGTERM; its log:\n%s", p.Log())
	}
	return p.err
}
