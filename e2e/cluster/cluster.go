package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/ksctl/gitops/e2e/tools"
)

const (
	// startTimeout bounds each step of a start; a loaded machine needs a tenth.
	startTimeout = 3 * time.Minute
	// stopGrace is how long a program may take to end when asked.
	stopGrace = 60 * time.Second
	// keepVariable is the environment variable that keeps run folders.
	keepVariable = "KSCTL_E2E_KEEP"
)

// Cluster is a running control plane. Its methods may be called from several
// goroutines at once, except for Stop and the ones that stop and start the API
// server.
type Cluster struct {
	opts     Options
	binaries map[string]string // paths, by name
	run      *runDir
	pki      *pki

	etcdPort, apiPort *port
	etcd, apiServer   *process
	apiServerSince    time.Time
	others            []*process // the API server's clients

	config     *rest.Config
	kubeconfig string
	clientset  *kubernetes.Clientset
	client     client.Client

	auditEnd atomic.Pointer[Mark] // where some line of the audit log ends

	stopOnce sync.Once
	stopErr  error
}

// Start builds what is missing, cleans up after runs that died, and starts a
// cluster. It returns when objects can be created: CRDs are served, the fake
// nodes take pods, and the namespace default has its ServiceAccount. ctx bounds
// the start only; the cluster runs until [Cluster.Stop], or until this process
// ends. An error leaves nothing running.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	var progress io.Writer = os.Stderr
	if opts.Progress != nil {
		progress = opts.Progress
	}
	binaries, err := tools.Build(ctx, progress, opts.Tools()...)
	if err != nil {
		return nil, fmt.Errorf("get the control plane's programs: %w", err)
	}
	root, err := runsRoot()
	if err != nil {
		return nil, err
	}
	if err := sweep(root); err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, binaries: binaries}
	if c.run, err = newRunDir(root); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		// What failed may be what Stop complains about, so it goes second.
		return nil, errors.Join(fmt.Errorf("start a cluster: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	var err error
	if c.etcd, err = c.run.launch(tools.Etcd, c.binaries[tools.Etcd], c.etcdArgs()); err != nil {
		return err
	}
	// The API server keeps asking for etcd, so there is no need to wait here.
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	// CRDs come first: the garbage collector of a controller manager that is
	// already running would learn of new kinds up to 30 seconds later.
	if err := c.installCRDs(); err != nil {
		return err
	}
	return c.startControllers(ctx)
}

// prepare writes the files and makes the clients that the rest needs.
func (c *Cluster) prepare() error {
	var err error
	if c.etcdPort, err = reservePort(); err != nil {
		return err
	}
	if c.apiPort, err = reservePort(); err != nil {
		return err
	}
	if c.pki, err = newPKI(); err != nil {
		return err
	}
	if err := c.pki.write(c.run, c.opts.Addresses); err != nil {
		return err
	}
	if err := os.WriteFile(c.run.path(auditPolicyFile), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	if err := os.WriteFile(c.run.path(stagesFile), stages, 0o600); err != nil {
		return fmt.Errorf("write the stages of fake nodes: %w", err)
	}
	return c.prepareAccess()
}

func (c *Cluster) installCRDs() error {
	if len(c.opts.CRDPaths) == 0 {
		return nil
	}
	_, err := envtest.InstallCRDs(c.Config(), envtest.CRDInstallOptions{
		Paths:              c.opts.CRDPaths,
		ErrorIfPathMissing: true,
		MaxTime:            startTimeout,
		PollInterval:       pollInterval,
	})
	if err != nil {
		return fmt.Errorf("install CustomResourceDefinitions: %w", err)
	}
	return nil
}

// Stop ends everything, clients before the API server and that before etcd,
// and deletes the run's folder. It is an error if a program had ended before,
// or did not end when asked (then it was killed). Calling it again returns the
// same error and does nothing.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() { c.stopErr = c.stop() })
	return c.stopErr
}

func (c *Cluster) stop() error {
	errs := make([]error, len(c.others))
	var wg sync.WaitGroup
	for i, p := range c.others {
		wg.Go(func() { errs[i] = p.stop() })
	}
	wg.Wait()
	for _, p := range []*process{c.apiServer, c.etcd} {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	for _, p := range []*port{c.apiPort, c.etcdPort} {
		if p != nil {
			p.release()
		}
	}
	errs = append(errs, c.run.remove(os.Getenv(keepVariable) != ""))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop the cluster: %w", err)
	}
	return nil
}

// Dir returns the run's folder, with the programs' logs (<name>.log). Suites
// may put files of their own there.
func (c *Cluster) Dir() string { return c.run.dir }

// LogFile returns the path of a log in the run's folder for a program of the suite's. It is
// kept wherever the programs' own logs are kept.
func (c *Cluster) LogFile(name string) string { return c.run.path(name + ".log") }

// Kubectl returns the path of a kubectl that fits the cluster. It needs
// --kubeconfig; see [Cluster.Kubeconfig].
func (c *Cluster) Kubectl() string { return c.binaries[tools.Kubectl] }
