package setup

import (
	"context"
	"os"
	"path/filepath"

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
	steps := &exportstate.Steps{Client: c.mgr.GetClient(),
		Git:     git.NewClient(git.Options{Limits: limits, TempDir: work}),
		Encrypt: c.opts.Encrypt, Target: c.localTarget, DefaultServiceAccount: c.opts.DefaultServiceAccount,
		SecretKey: c.key, Clock: realClock}
	setup := &exportstate.Setup{
		Reconciler: newReconciler[v1alpha1.ExportState, v1alpha1.ExportStateList](c,
			v1alpha1.ExportStateKind, steps),
		DefaultServiceAccount: c.opts.DefaultServiceAccount,
	}
	return setup.Register(ctx, c.mgr)
}
