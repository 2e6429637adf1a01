package setup

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/exportstate"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// ExportOptions configures the commits of exported states.
type ExportOptions struct {
	// GitLimits bounds the target repository; Options.ArtifactLimits bounds its tree.
	GitLimits git.Limits
}

// AddExports adds the reconciler of ExportState.
func (c *Controllers) AddExports(ctx context.Context, o ExportOptions) error {
	// A killed process leaves files behind. If the directory can't be removed, each export reports
	// the error.
	work := filepath.Join(c.opts.StoragePath, "exports")
	_ = os.RemoveAll(work)
	limits := o.GitLimits
	limits.Tree = c.opts.ArtifactLimits
	steps := &exportstate.Steps{Client: c.mgr.GetClient(), Git: git.NewClient(git.Options{Limits: limits, TempDir: work}),
		Encrypt: c.opts.Encrypt, Target: c.localTarget, DefaultServiceAccount: c.opts.DefaultServiceAccount, SecretKey: c.key, Clock: clock.RealClock{}}
	setup := &exportstate.Setup{
		Reconciler:            newReconciler(c, v1alpha1.ExportStateKind, steps, func() *v1alpha1.ExportState { return &v1alpha1.ExportState{} }),
		DefaultServiceAccount: c.opts.DefaultServiceAccount, Options: c.controllerOptions(),
	}
	setup.Reconciler.Selector = c.selectorPredicate()
	return setup.Register(ctx, c.mgr)
}
