package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/stacks"
)

// Where the shipped manifests run the controller, and as whom.
const (
	systemNamespace = "ksctl-gitops-system"
	systemAccount   = "ksctl-gitops"
)

// signalGrace is how much later than another process this one may see a signal, on a
// machine that is busy.
const signalGrace = 3 * time.Second

// patience bounds an act. It takes seconds, and longer on a machine that is busy.
const patience = 4 * time.Minute

// What the example's dev cluster has.
const (
	clusterPath     = "clusters/dev"
	installFile     = clusterPath + "/install.yaml"
	namespace       = "shop"
	installName     = "shop"
	sourceName      = "fleet"
	deployerAccount = "shop-deployer"
)

// demo is one run.
type demo struct {
	*screen
	keep  bool
	began time.Time
	root  string // of the checkout
	temp  string // folder for builds: an interrupted one can't always clear up

	cluster    *cluster.Cluster
	client     client.WithWatch
	repository *repository
	controller *controller
	plan       *stacks.Plan // of the install

	summary []string
}

// run goes through the acts. What it started is left to stop.
func (d *demo) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if err == nil {
			return
		}
		// Ctrl-C reaches what runs beside this process, too, and maybe before it.
		select {
		case <-ctx.Done():
			err = context.Cause(ctx) // of which err is but a consequence
		case <-time.After(signalGrace):
		}
	}()
	if d.temp, err = os.MkdirTemp("", "ksctl-gitops-demo-"); err != nil {
		return err
	}
	if err := d.start(ctx, cancel); err != nil {
		return err
	}
	acts := []func(context.Context) error{d.install, d.change, d.drift}
	if !d.keep {
		acts = append(acts, d.remove)
	}
	for _, act := range acts {
		if err := act(ctx); err != nil {
			return err
		}
	}
	d.conclude()
	if d.keep {
		return d.leaveUp(ctx)
	}
	return nil
}

// start brings everything up that the acts need.
func (d *demo) start(ctx context.Context, cancel context.CancelCauseFunc) error {
	d.line("%s  %s", d.bold("ksctl GitOps, on this machine alone"), d.dim("Ctrl-C ends it and leaves nothing"))
	d.line("")
	var binary string
	steps := []struct {
		name, doing string
		do          func(context.Context) (string, error)
	}{
		{"tools", "preparing the control plane's programs", d.buildTools},
		{"control plane", "starting the control plane", d.startCluster},
		{"repository", "making the repository", d.serveGit},
		{"definitions", "applying CRDs and roles", d.applyConfig},
		{"build", "building the controller (about 2 minutes with an empty build cache, else seconds)", func(ctx context.Context) (string, error) {
			binary = filepath.Join(d.cluster.Dir(), "controller")
			return "cmd/controller", buildController(ctx, d.root, d.temp, binary)
		}},
		{"controller", "starting the controller", func(ctx context.Context) (string, error) { return d.runController(ctx, binary, cancel) }},
	}
	for _, s := range steps {
		began := time.Now()
		stop := d.spin(s.doing)
		result, err := s.do(ctx)
		stop()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		d.line("%s %-14s %s  %s", d.green("✓"), s.name, result, d.dim(seconds(time.Since(began))))
	}
	d.summary = append(d.summary, fmt.Sprintf("%-10s in %s", "up", seconds(time.Since(d.began))))
	return nil
}

func (d *demo) startCluster(ctx context.Context) (string, error) {
	known := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(known), appsv1.AddToScheme(known))
	if err != nil {
		return "", err
	}
	o := clusterOptions()
	o.Scheme = known
	d.cluster, err = cluster.Start(ctx, o)
	if err != nil {
		return "", err
	}
	if d.client, err = client.NewWithWatch(d.cluster.Config(), client.Options{Scheme: known, Mapper: d.cluster.Client().RESTMapper()}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s with a fake node", d.cluster.Config().Host), nil
}

func (d *demo) serveGit(ctx context.Context) (string, error) {
	var err error
	if d.repository, err = openRepository(ctx, d.root, d.cluster.Dir()); err != nil {
		return "", err
	}
	return d.repository.bare.URL() + " from examples/standalone", nil
}

func (d *demo) applyConfig(ctx context.Context) (string, error) {
	for _, path := range []string{"crd", "manager/namespace.yaml", "rbac"} {
		if err := d.cluster.Apply(ctx, filepath.Join(d.root, "config", filepath.FromSlash(path))); err != nil {
			return "", err
		}
	}
	// The first request for a kind makes the API server prepare its storage, and
	// until that is done it sends those who want to watch away for a second.
	var group errgroup.Group
	for _, list := range []client.ObjectList{&appsv1.KsctlInstallList{}, &appsv1.KsctlSourceList{}, &appsv1.KsctlInventoryList{}} {
		group.Go(func() error { return d.client.List(ctx, list) })
	}
	return "config/crd and config/rbac", group.Wait()
}

func (d *demo) runController(ctx context.Context, binary string, cancel context.CancelCauseFunc) (string, error) {
	kubeconfig, err := d.cluster.KubeconfigFor(ctx, systemNamespace, systemAccount)
	if err != nil {
		return "", err
	}
	d.controller, err = startController(d.cluster.Dir(), binary, kubeconfig, func(err error) { cancel(err) })
	if err != nil {
		return "", err
	}
	ctx, stop := within(ctx)
	defer stop()
	if err := until(ctx, refresh, d.controller.healthy); err != nil {
		return "", err
	}
	return fmt.Sprintf("process %d as %s/%s", d.controller.cmd.Process.Pid, systemNamespace, systemAccount), nil
}

// stop ends what was started, last first, and removes it.
func (d *demo) stop() error {
	began := time.Now()
	var errs []error
	for _, s := range []struct {
		what    string
		started bool
		end     func() error
	}{
		{"controller", d.controller != nil, func() error { return d.controller.stop() }},
		{"Git server", d.repository != nil, func() error { return d.repository.server.Close() }},
		{"control plane", d.cluster != nil, func() error { return d.cluster.Stop() }},
		{"folder for builds", d.temp != "", func() error { return os.RemoveAll(d.temp) }},
	} {
		if s.started {
			stop := d.spin("stopping: " + s.what)
			errs = append(errs, s.end())
			stop()
		}
	}
	err := errors.Join(errs...)
	if err == nil {
		d.line("%s", d.dim("Stopped in "+seconds(time.Since(began))+": no process and no file is left."))
	}
	return err
}

// conclude says what came true.
func (d *demo) conclude() {
	d.line("")
	d.line("%s", d.bold("ALL OF IT CAME TRUE"))
	for _, s := range append(d.summary, fmt.Sprintf("%-10s %s", "in all", seconds(time.Since(d.began)))) {
		d.line("  %s %s", d.green("✓"), s)
	}
	d.line("")
}

// until asks again and again until there is nothing to wait for. When ctx ends,
// the error says why and what was waited for last.
func until(ctx context.Context, every time.Duration, ask func(context.Context) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// within bounds an act, and says so when the time is over.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
}

func (d *demo) getInstall(ctx context.Context) (*appsv1.KsctlInstall, error) {
	in := &appsv1.KsctlInstall{}
	return in, d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: installName}, in)
}

func (d *demo) getSource(ctx context.Context) (*appsv1.KsctlSource, error) {
	src := &appsv1.KsctlSource{}
	return src, d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sourceName}, src)
}
