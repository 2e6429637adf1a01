package cluster

import (
	"cmp"
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
	// startTimeout bounds each step of a start; a loaded machine needs a tenth of it.
	startTimeout = 3 * time.Minute
	// stopGrace is the time between SIGTERM and SIGKILL. It is longer than the minute
	// (--request-timeout) for which an API server that stops waits for the connections of its
	// clients.
	stopGrace = 90 * time.Second
	// keepVariable is the environment variable that keeps run folders after a run.
	keepVariable = "KSCTL_E2E_KEEP"
)

// Cluster is a running control plane. It is safe for concurrent use, except for Stop and the
// methods that stop and start the API server or etcd.
type Cluster struct {
	opts     Options
	binaries map[string]string // paths by program name
	run      *runDir
	pki      *pki

	etcdPort, apiPort *port
	etcd, apiServer   *Process
	apiServerStarted  time.Time
	components        []*Process // controller manager, scheduler and kwok

	config     *rest.Config
	kubeconfig string
	clientset  *kubernetes.Clientset
	client     client.WithWatch

	lastMark atomic.Pointer[Mark] // last mark read; where the next read for a mark begins

	stopOnce func() error
}

// Start builds missing programs, cleans up after dead runs, and starts a cluster. It returns when
// objects can be created: CRDs are served, the fake nodes accept pods, and the namespace default
// has its ServiceAccount. ctx bounds only the start; the cluster runs until [Cluster.Stop] or the
// end of this process. After an error nothing is left running.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	binaries, err := tools.Build(ctx, cmp.Or[io.Writer](opts.Progress, os.Stderr), opts.Tools()...)
	if err != nil {
		return nil, fmt.Errorf("building the control plane's programs: %w", err)
	}
	root, err := runsRoot()
	if err != nil {
		return nil, err
	}
	if err := sweep(root); err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, binaries: binaries}
	c.stopOnce = sync.OnceValue(c.stop)
	if c.run, err = newRunDir(root); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		// Stop may report a consequence of the same failure, so its error comes second.
		return nil, errors.Join(fmt.Errorf("starting a cluster: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	var err error
	if c.etcd, err = c.launchTool(tools.Etcd, c.etcdArgs()); err != nil {
		return err
	}
	// The API server retries until etcd serves, so there is no need to wait here.
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	// CRDs come first: the garbage collector of a running controller manager discovers new kinds
	// only every 30 seconds.
	if err := c.installCRDs(); err != nil {
		return err
	}
	return c.startComponents(ctx)
}

// prepare reserves the ports, writes the files and creates the clients that the other steps need.
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
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	if err := os.WriteFile(c.run.path(stagesFile), stages, 0o600); err != nil {
		return fmt.Errorf("writing the stages of fake nodes: %w", err)
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
		return fmt.Errorf("installing CustomResourceDefinitions: %w", err)
	}
	return nil
}

// Stop ends all programs, first the API server's clients, then the API server, then etcd, and
// deletes the run's folder. It returns an error if a program ended earlier by itself, or had to be
// killed because it did not end on SIGTERM. Further calls do nothing and return the same error.
func (c *Cluster) Stop() error { return c.stopOnce() }

func (c *Cluster) stop() error {
	errs := make([]error, len(c.components))
	var wg sync.WaitGroup
	for i, p := range c.components {
		wg.Go(func() { errs[i] = p.stop() })
	}
	wg.Wait()
	for _, p := range []*Process{c.apiServer, c.etcd} {
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
		return fmt.Errorf("stopping the cluster: %w", err)
	}
	return nil
}

// Dir returns the run's folder, which contains the programs' logs (<name>.log). Suites may add
// files to it.
func (c *Cluster) Dir() string { return c.run.dir }

// Kubectl returns the path of a kubectl of the cluster's version. It needs --kubeconfig; see
// [Cluster.Kubeconfig].
func (c *Cluster) Kubectl() string { return c.binaries[tools.Kubectl] }
