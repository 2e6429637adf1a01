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
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/stacks"
)

// Namespace and ServiceAccount of the controller in the shipped manifests.
const (
	systemNamespace = "ksctl-gitops-system"
	systemAccount   = "ksctl-gitops"
)

// signalGrace bounds the delay between the delivery of a signal to a child process and to this one,
// on a busy machine.
const signalGrace = 3 * time.Second

// actTimeout bounds each act. An act takes seconds, and longer on a busy machine.
const actTimeout = 4 * time.Minute

// Names in the dev cluster of the example.
const (
	clusterPath     = "clusters/dev"
	installFile     = clusterPath + "/install.yaml"
	namespace       = "shop"
	installName     = "shop"
	sourceName      = "fleet"
	deployerAccount = "shop-deployer"
)

// demo is one run of the demo.
type demo struct {
	*screen
	keep  bool
	began time.Time
	root  string // root folder of the checkout
	temp  string // folder for builds, because an interrupted build can't always clean up

	cluster    *cluster.Cluster
	client     client.WithWatch
	repository *repository
	controller *cluster.Process
	plan       *stacks.ResolvedStack // plan of the install

	summary []string
}

// run performs the acts. The caller calls stop, also after an error.
func (d *demo) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if err == nil {
			return
		}
		// Ctrl-C also reaches child processes, maybe earlier than this process.
		select {
		case <-ctx.Done():
			err = context.Cause(ctx) // err is only a consequence of it
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
		if err := runAct(ctx, act); err != nil {
			return err
		}
	}
	d.printSummary()
	if d.keep {
		return d.keepRunning(ctx)
	}
	return nil
}

// start starts the control plane, the repository and the controller.
func (d *demo) start(ctx context.Context, cancel context.CancelCauseFunc) error {
	d.line("%s  %s", d.bold("ksctl GitOps demo on this machine"), d.dim("Ctrl-C stops it and removes everything"))
	d.line("")
	var binary string
	steps := []struct {
		name, doing string
		do          func(context.Context) (string, error)
	}{
		{"tools", "preparing the control plane's programs", d.buildTools},
		{"control plane", "starting the control plane", d.startControlPlane},
		{"repository", "creating the repository", d.serveGit},
		{"CRDs and RBAC", "applying CRDs and RBAC", d.applyConfig},
		{"build", "building the controller (about 2 minutes " +
			"with an empty build cache, else seconds)", func(ctx context.Context) (string, error) {
			binary = filepath.Join(d.cluster.Dir(), "controller")
			return "cmd/controller", buildController(ctx, d.root, d.temp, binary)
		}},
		{"controller", "starting the controller", func(ctx context.Context) (string, error) {
			return d.runController(ctx, binary, cancel)
		}},
	}
	for _, s := range steps {
		began := time.Now()
		stop := d.spinner(s.doing)
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

func (d *demo) startControlPlane(ctx context.Context) (string, error) {
	o := clusterOptions()
	o.Scheme = runtime.NewScheme()
	err := appsv1.AddToScheme(o.Scheme)
	if err != nil {
		return "", err
	}
	if d.cluster, err = cluster.Start(ctx, o); err != nil {
		return "", err
	}
	d.client = d.cluster.Client()
	return fmt.Sprintf("%s with a fake node", d.cluster.Config().Host), nil
}

func (d *demo) serveGit(ctx context.Context) (string, error) {
	var err error
	if d.repository, err = newRepository(ctx, d.root, d.cluster.Dir()); err != nil {
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
	// The first request for a kind makes the API server initialize its storage. Until that is done,
	// the API server rejects watches with a retry delay of a second.
	var group errgroup.Group
	for _, list := range []client.ObjectList{&appsv1.KsctlInstallList{}, &appsv1.KsctlSourceList{},
		&appsv1.KsctlInventoryList{}} {
		group.Go(func() error { return d.client.List(ctx, list) })
	}
	return "config/crd and config/rbac", group.Wait()
}

// stop stops everything that start has started, in reverse order, and removes the files.
func (d *demo) stop() error {
	began := time.Now()
	var errs []error
	for _, s := range []struct {
		what    string
		started bool
		end     func() error
	}{
		{"controller", d.controller != nil, d.stopController},
		{"Git server", d.repository != nil, func() error { return d.repository.server.Close() }},
		{"control plane", d.cluster != nil, func() error { return d.cluster.Stop() }},
		{"build folder", d.temp != "", func() error { return os.RemoveAll(d.temp) }},
	} {
		if s.started {
			stop := d.spinner("stopping: " + s.what)
			errs = append(errs, s.end())
			stop()
		}
	}
	err := errors.Join(errs...)
	if err == nil {
		d.line("%s", d.dim("Stopped in "+seconds(time.Since(began))+". All processes and files are removed."))
	}
	return err
}

// printSummary prints the summary.
func (d *demo) printSummary() {
	d.line("")
	d.line("%s", d.bold("ALL STEPS SUCCEEDED"))
	for _, s := range append(d.summary, fmt.Sprintf("%-10s %s", "total", seconds(time.Since(d.began)))) {
		d.line("  %s %s", d.green("✓"), s)
	}
	d.line("")
}

// runAct performs an act within actTimeout.
func runAct(ctx context.Context, act func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, actTimeout, fmt.Errorf("timed out after %s", actTimeout))
	defer cancel()
	return act(ctx)
}

func (d *demo) getInstall(ctx context.Context) (*appsv1.KsctlInstall, error) {
	in := &appsv1.KsctlInstall{}
	return in, d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: installName}, in)
}

func (d *demo) getSource(ctx context.Context) (*appsv1.KsctlSource, error) {
	src := &appsv1.KsctlSource{}
	return src, d.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sourceName}, src)
}
