package manager

import (
	"context"
	"fmt"

	"github.com/fluxcd/pkg/runtime/probes"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/ksctl/gitops/controllers/setup"
	"github.com/ksctl/gitops/internal/renderworker"
	"github.com/ksctl/gitops/internal/sopsworker"
	"github.com/ksctl/gitops/internal/telemetry/metrics"
)

// leaderElectionID is the name of the leader election Lease.
const leaderElectionID = "ksctl-gitops-leader-election"

// NewScheme returns a scheme with every kind that the controllers read or write.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, setup.AddToScheme(s)
}

// Run runs the controllers until ctx is done. It returns after everything that it started has
// stopped.
func Run(ctx context.Context, cfg *rest.Config, o *Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	p, err := build(ctx, cfg, o)
	if p != nil && p.pool != nil {
		defer p.pool.Close() // as a runnable it would be stopped before the reconcilers that render
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx was canceled during startup, which is not a failure
	}
	if err != nil {
		return err
	}
	return p.mgr.Start(ctx)
}

// process is the controller process while it is set up.
type process struct {
	opts    *Options
	mgr     ctrl.Manager
	events  record.EventRecorder
	metrics *metrics.Recorder
	// selector is --watch-label-selector; nil selects all objects.
	selector labels.Selector
	// pool renders stacks; nil if they are rendered in this process.
	pool *renderworker.Pool
	// checkLeadership returns an error if another replica may be the leader; nil without leader
	// election.
	checkLeadership func() error
}

func build(ctx context.Context, cfg *rest.Config, o *Options) (*process, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	addResponseTimeout(cfg, responseHeaderTimeout)
	p := &process{opts: o}
	if o.LeaderElection.Enable {
		p.checkLeadership = fenceWrites(cfg, o.RuntimeNamespace, leaderElectionID,
			o.LeaderElection.LeaseDuration).checkLease
	}
	if o.Watch.LabelSelector != "" {
		if p.selector, err = labels.Parse(o.Watch.LabelSelector); err != nil {
			return nil, fmt.Errorf("--watch-label-selector: %w", err)
		}
	}
	cacheOpts, err := cacheOptions(o, scheme, p.selector)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: cacheOpts,
		Metrics:                server.Options{BindAddress: o.MetricsAddr},
		HealthProbeBindAddress: o.HealthAddr, PprofBindAddress: o.PprofAddr,
		LeaderElection: o.LeaderElection.Enable, LeaderElectionID: leaderElectionID,
		LeaderElectionNamespace:       o.RuntimeNamespace,
		LeaderElectionReleaseOnCancel: o.LeaderElection.ReleaseOnCancel,
		LeaseDuration:                 &o.LeaderElection.LeaseDuration, RenewDeadline: &o.LeaderElection.RenewDeadline,
		RetryPeriod: &o.LeaderElection.RetryPeriod,
		Client:      client.Options{Cache: &client.CacheOptions{Unstructured: false}},
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	probes.SetupChecks(mgr, ctrl.Log.WithName("setup"))
	p.mgr = mgr
	if p.metrics, err = metrics.Register(crmetrics.Registry); err != nil {
		return nil, err
	}
	if err := p.addEventRecorder(ctx); err != nil {
		return nil, err
	}
	return p, p.addControllers(ctx)
}

// addControllers adds the controllers of all kinds to the manager.
func (p *process) addControllers(ctx context.Context) error {
	o := p.opts
	sops := sopsworker.New(o.SOPSWorker)
	shared := o.Options
	shared.Namespace, shared.NoCrossNamespaceRefs, shared.ConfigCacheFiltered = o.RuntimeNamespace,
		o.ACL.NoCrossNamespaceRefs, o.Watch.ConfigsLabelSelector != ""
	shared.Jitter, shared.Selector, shared.Events, shared.Metrics, shared.CheckLeadership = o.Jitter.Percentage,
		p.selector, p.events, crmetrics.Registry, p.checkLeadership
	shared.Render, shared.Decrypt, shared.Encrypt = p.renderFunc(), sops.Decrypt, sops.Encrypt
	controllers, err := setup.New(ctx, p.mgr, shared)
	if err != nil {
		return err
	}
	if err := controllers.AddSources(ctx, setup.SourceOptions{Addr: o.StorageAddr, AdvAddr: o.StorageAdvAddr,
		StorageBytes: o.SourceStorageBytes,
		GitLimits:    o.GitLimits, WebhookAddr: o.WebhookAddr, WebhookBytes: o.WebhookBytes}); err != nil {
		return err
	}
	for _, add := range []func(context.Context) error{controllers.AddInstalls, controllers.AddRemovals,
		controllers.AddImports, controllers.AddClusters} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	if err := controllers.AddExports(ctx, setup.ExportOptions{GitLimits: o.GitLimits}); err != nil {
		return err
	}
	if err := controllers.AddKinds(ctx, setup.KindOptions{Groups: o.KindGroups}); err != nil {
		return err
	}
	if err := controllers.AddAutoScalers(ctx,
		setup.AutoScalerOptions{Addr: o.NodeGroupAddr, AdvAddr: o.NodeGroupAdvAddr}); err != nil {
		return err
	}
	return p.addREST()
}
