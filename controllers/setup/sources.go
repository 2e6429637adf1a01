package setup

import (
	"context"
	"os"
	"path/filepath"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/source"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/internal/sources/webhook"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

// SourceOptions configures how KsctlSources are fetched and served. Addr is required.
type SourceOptions struct {
	// Addr is the listen address of the artifact server, such as ":9090". AdvAddr is the host in
	// the URLs of artifacts; the host of Addr if empty. Each replica serves its own artifacts.
	Addr, AdvAddr string
	// StorageBytes bounds the artifacts on disk; storage.DefaultBytes if 0.
	StorageBytes int64
	// GitLimits bounds a Git repository; Options.ArtifactLimits bounds its tree.
	GitLimits git.Limits
	// WebhookAddr is the listen address of the push webhook; empty: no webhook. WebhookBytes
	// bounds each request.
	WebhookAddr  string
	WebhookBytes int64
}

// AddSources adds the reconciler of KsctlSource, the artifact server, the push webhook, and the
// reporter that sets commit statuses of installs.
func (c *Controllers) AddSources(ctx context.Context, o SourceOptions) error {
	served, err := storage.Open(storage.Options{Path: filepath.Join(c.opts.StoragePath, "served"),
		MaxBytes: o.StorageBytes, Addr: o.Addr, AdvertisedAddr: o.AdvAddr})
	if err != nil {
		return err
	}
	if err := c.mgr.Add(served); err != nil {
		return err
	}
	c.artifactStorage = served
	// On the same disk as the artifacts. A killed process leaves files behind. If the directory
	// can't be removed, each source reports the error.
	work := filepath.Join(c.opts.StoragePath, "work")
	_ = os.RemoveAll(work)
	limits := o.GitLimits
	limits.Tree = c.opts.ArtifactLimits
	steps := &source.Steps{Git: git.NewClient(git.Options{Limits: limits, TempDir: work}),
		OCI:     oci.NewClient(oci.Options{Limits: c.opts.ArtifactLimits, TempDir: work}),
		Secrets: c.mgr.GetAPIReader(), Storage: served.Space(source.Space), Webhooks: o.WebhookAddr != "",
		Limits: c.opts.ArtifactLimits, Clock: realClock}
	setup := &source.Setup{
		Reconciler: newReconciler[appsv1.KsctlSource, appsv1.KsctlSourceList](c, appsv1.KsctlSourceKind, steps),
		Storage:    steps.Storage,
	}
	if err := setup.Register(ctx, c.mgr); err != nil {
		return err
	}
	notifier := &source.Notifier{Client: c.mgr.GetClient(), Steps: steps, Events: c.opts.Events,
		CheckLeader: c.opts.CheckLeadership,
		Count:       c.metrics.CommitStatus, Clock: realClock}
	if err := notifier.Register(ctx, c.mgr, c.controllerOptions()); err != nil || o.WebhookAddr == "" {
		return err
	}
	return webhook.New(webhook.Options{
		Client: c.mgr.GetClient(), Secrets: c.mgr.GetAPIReader(), Addr: o.WebhookAddr, MaxBytes: o.WebhookBytes,
		FieldOwner: FieldOwner, Clock: realClock, Log: c.mgr.GetLogger().WithName("webhook"),
		Count: c.metrics.WebhookRequest,
	}).Register(ctx, c.mgr)
}
