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

// leaderElectionID names the Lease.
const leaderElectionID = "ksctl-gitops-leader-election"

// NewScheme knows every kind that the process reads or writes.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, setup.AddToScheme(s)
}

// Run runs the controllers until ctx ends. It returns when everything that it
// started has ended.
func Run(ctx context.Context, cfg *rest.Config, o *Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	p, err := build(ctx, cfg, o)
	if p != nil && p.pool != nil {
		defer p.pool.Close() // the manager would end it before the reconciles that render
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // told to stop while it started
	}
	if err != nil {
		return err
	}
	return p.mgr.Start(ctx)
}

// process is what runs.
type process struct {
	opts    *Options
	mgr     ctrl.Manager
	events  record.EventRecorder
	metrics *metrics.Recorder
	// pool renders; nil when this process does.
	pool *renderworker.Pool
	// leads fails when another process may lead; nil without leader election.
	leads func() error
}

func build(ctx context.Context, cfg *rest.Config, o *Options) (*process, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	bound(cfg, answerWithin)
	p := &process{opts: o}
	if o.LeaderElection.Enable {
		p.leads = fenced(cfg, o.RuntimeNamespace, leaderElectionID, o.LeaderElection.LeaseDuration).holds
	}
	caches, err := cacheOptions(o, scheme)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: caches,
		Metrics:                server.Options{BindAddress: o.MetricsAddr},
		HealthProbeBindAddress: o.HealthAddr, PprofBindAddress: o.PprofAddr,
		LeaderElection: o.LeaderElection.Enable, LeaderElectionID: leaderElectionID, LeaderElectionNamespace: o.RuntimeNamespace,
		LeaderElectionReleaseOnCancel: o.LeaderElection.ReleaseOnCancel,
		LeaseDuration:                 &o.LeaderElection.LeaseDuration, RenewDeadline: &o.LeaderElection.RenewDeadline, RetryPeriod: &o.LeaderElection.RetryPeriod,
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: false}},
	})
	if err != nil {
		return nil, fmt.Errorf("manager: %w", err)
	}
	probes.SetupChecks(mgr, ctrl.Log.WithName("setup"))
	p.mgr = mgr
	if p.metrics, err = metrics.Register(crmetrics.Registry); err != nil {
		return nil, err
	}
	if err := p.addEvents(ctx); err != nil {
		return nil, err
	}
	return p, p.addKinds(ctx)
}

// addKinds registers the controllers.
func (p *process) addKinds(ctx context.Context) error {
	o := p.opts
	sops := sopsworker.New(sopsworker.Options{Path: o.SOPSWorker})
	shared := setup.Options{
		OwnerID: o.OwnerID, Namespace: o.RuntimeNamespace, StoragePath: o.StoragePath, DefaultServiceAccount: o.DefaultServiceAccount,
		NoCrossNamespaceRefs: o.ACL.NoCrossNamespaceRefs, ConfigsSelected: o.Watch.ConfigsLabelSelector != "",
		Concurrent: o.Concurrent, Jitter: o.Jitter.Percentage, Events: p.events, Metrics: crmetrics.Registry, Leads: p.leads,
		Render: p.renderFunc(), Decrypt: sops.Decrypt, Encrypt: sops.Encrypt, RenderCacheBytes: o.RenderCacheBytes,
		ArtifactCacheBytes: o.ArtifactCacheBytes, ArtifactLimits: o.ArtifactLimits, ArtifactTimeout: o.ArtifactTimeout,
		ChartCacheBytes: o.ChartCacheBytes, ChartIndexBytes: o.ChartIndexBytes, ChartLimits: o.ChartLimits,
		CatalogURL: o.CatalogURL, CatalogInsecure: o.CatalogInsecure,
		ArgoCDNamespaces: o.ArgoCDNamespaces, InsecureKubeConfigTLS: o.InsecureKubeConfigTLS,
	}
	if o.Watch.LabelSelector != "" {
		var err error
		if shared.Selector, err = labels.Parse(o.Watch.LabelSelector); err != nil {
			return fmt.Errorf("--watch-label-selector: %w", err)
		}
	}
	controllers, err := setup.New(ctx, p.mgr, shared)
	if err != nil {
		return err
	}
	if err := controllers.AddSources(ctx, setup.Sources{Addr: o.StorageAddr, AdvAddr: o.StorageAdvAddr, StorageBytes: o.SourceStorageBytes,
		GitLimits: o.GitLimits, WebhookAddr: o.WebhookAddr, WebhookBytes: o.WebhookBytes}); err != nil {
		return err
	}
	if err := controllers.AddInstalls(ctx); err != nil {
		return err
	}
	if err := controllers.AddRemovals(ctx); err != nil {
		return err
	}
	if err := controllers.AddImports(ctx); err != nil {
		return err
	}
	if err := controllers.AddExports(ctx, setup.Exports{GitLimits: o.GitLimits}); err != nil {
		return err
	}
	if err := controllers.AddClusters(ctx); err != nil {
		return err
	}
	return controllers.AddAutoScalers(ctx, setup.AutoScalers{Addr: o.NodeGroupAddr, AdvAddr: o.NodeGroupAdvAddr})
}
