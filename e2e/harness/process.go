package harness

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/programs"
)

// LeaderElectionFlags are the flags of a replica with leader election. The lease is long enough for
// a machine that stalls, and the retry period short, so that another replica soon takes over.
var LeaderElectionFlags = []string{"--enable-leader-election", "--leader-election-lease-duration=30s",
	"--leader-election-renew-deadline=24s",
	"--leader-election-retry-period=500ms"}

// Process is a program that runs as a child process, such as the shipped controller.
type Process struct {
	*cluster.Process
	// HealthURL returns status 200 when the program is ready. MetricsAddress is the address of the
	// metrics server. Both are empty for a program that [Harness.RunProgram] has started.
	HealthURL, MetricsAddress string
}

// Build returns the path of one of our programs, such as [programs.Controller]. The first call for
// a program builds it.
func (h *Harness) Build(ctx context.Context, program string) (string, error) {
	h.buildMutex.Lock()
	defer h.buildMutex.Unlock()
	if path, ok := h.built[program]; ok {
		return path, nil
	}
	build := programs.Build
	if h.ReleaseBuild {
		build = programs.BuildRelease
	}
	path, err := build(ctx, h.dir, program)
	if err == nil {
		h.built[program] = path
	}
	return path, err
}

// StartProcess starts the controller as a child process, with additional flags. The configuration
// is [Harness.Config], or a copy whose address is a proxy. StartProcess does not wait until the
// controller is ready: see [Process.WaitHealthy].
func (h *Harness) StartProcess(ctx context.Context, config *rest.Config, flags ...string) (*Process, error) {
	binary, err := h.Build(ctx, programs.Controller)
	if err != nil {
		return nil, err
	}
	storage, err := h.storageFlags()
	if err != nil {
		return nil, err
	}
	return h.StartProgram(binary, config, append(storage, flags...)...)
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
	p.HealthURL, p.MetricsAddress = "http://"+health+"/readyz", metrics
	return p, nil
}

// RunProgram starts any program with a separate HOME, and with KUBECONFIG set to a file with the
// configuration. env is appended to its environment and wins over earlier values.
func (h *Harness) RunProgram(binary string, config *rest.Config, env []string, args ...string) (*Process, error) {
	dir, err := os.MkdirTemp(h.dir, "process-")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := h.ControlPlane.WriteKubeconfig(filepath.Base(dir), config)
	if err != nil {
		return nil, err
	}
	p, err := h.ControlPlane.Launch(filepath.Base(binary)+"-"+filepath.Base(dir), binary, dir, args,
		append([]string{"KUBECONFIG=" + kubeconfig}, env...)...)
	if err != nil {
		return nil, err
	}
	return &Process{Process: p}, nil
}

// WaitHealthy waits until the health URL returns status 200, for at most four minutes.
func (p *Process) WaitHealthy(ctx context.Context) error {
	return cluster.Await(ctx, "the health check of a program", 4*time.Minute, func(ctx context.Context) error {
		_, err := cluster.HTTPGet(ctx, p.HealthURL)
		return err
	}, p.Process)
}

// Metrics returns the Prometheus metrics of the process.
func (p *Process) Metrics(ctx context.Context) (string, error) {
	return cluster.HTTPGet(ctx, "http://"+p.MetricsAddress+"/metrics")
}
