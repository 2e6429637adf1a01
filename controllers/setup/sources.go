package setup

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/source"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/internal/sources/webhook"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

// Sources say how KsctlSources are fetched and served. Addr is required.
type Sources struct {
	// Addr is where artifacts are served, as ":9090"; AdvAddr the host under which
	// installs fetch them, that of Addr when empty. Every replica serves its own.
	Addr, AdvAddr string
	// StorageBytes is what artifacts may take on disk; storage.DefaultBytes when 0.
	StorageBytes int64
	// GitLimits bound a Git repository; those of its tree are Options.ArtifactLimits.
	GitLimits git.Limits
	// WebhookAddr receives pushes; empty: none. WebhookBytes bounds each.
	WebhookAddr  string
	WebhookBytes int64
}

// AddSources adds the reconciler of KsctlSource, the server of what it fetches, and what
// tells commits how installs stand.
func (c *Controllers) AddSources(ctx context.Context, o Sources) error {
	served, err := storage.Open(storage.Options{Path: filepath.Join(c.opts.StoragePath, "served"),
		MaxBytes: o.StorageBytes, Addr: o.Addr, AdvAddr: o.AdvAddr})
	if err != nil {
		return err
	}
	if err := c.mgr.Add(served); err != nil {
		return err
	}
	c.served = served
	// On the same disk as artifacts, and empty: a process that was killed leaves
	// what it worked on. If the disk does not let go of it, each source says so.
	work := filepath.Join(c.opts.StoragePath, "work")
	_ = os.RemoveAll(work)
	limits := o.GitLimits
	limits.Tree = c.opts.ArtifactLimits
	steps := &source.Steps{Git: git.NewClient(git.Options{Limits: limits, TempDir: work}),
		OCI:     oci.NewClient(oci.Options{Limits: c.opts.ArtifactLimits, TempDir: work}),
		Secrets: c.mgr.GetAPIReader(), Storage: served.Space(source.Space), Webhooks: o.WebhookAddr != "", Limits: c.opts.ArtifactLimits, Clock: clock.RealClock{}}
	setup := &source.Setup{
		Reconciler: newReconciler(c, source.Kind, steps, func() *appsv1.KsctlSource { return &appsv1.KsctlSource{} }),
		Storage:    steps.Storage,
		Options:    c.controllerOptions(),
	}
	// Not by the cache: an install may name a source that another shard fetches.
	setup.Reconciler.Selector = c.selected()
	if err := setup.Register(ctx, c.mgr); err != nil {
		return err
	}
	teller := source.NewTeller(c.mgr.GetClient(), steps, c.opts.Events, c.opts.Leads, c.metrics.CommitStatus, clock.RealClock{})
	if err := teller.Register(ctx, c.mgr, c.controllerOptions()); err != nil || o.WebhookAddr == "" {
		return err
	}
	return webhook.New(webhook.Options{
		Client: c.mgr.GetClient(), Secrets: c.mgr.GetAPIReader(), Addr: o.WebhookAddr, MaxBytes: o.WebhookBytes,
		FieldOwner: FieldOwner, Clock: clock.RealClock{}, Log: c.mgr.GetLogger().WithName("webhook"), Count: c.metrics.WebhookRequest,
	}).Register(ctx, c.mgr)
}

// selected lets objects through that are selected; nil for all.
func (c *Controllers) selected() predicate.Predicate {
	if c.opts.Selector == nil {
		return nil
	}
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return c.opts.Selector.Matches(labels.Set(o.GetLabels())) })
}
