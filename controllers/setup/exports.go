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

// Exports say how states are committed.
type Exports struct {
	// GitLimits bound a repository that is committed to; those of its tree are
	// Options.ArtifactLimits.
	GitLimits git.Limits
}

// AddExports adds the reconciler of ExportState.
func (c *Controllers) AddExports(ctx context.Context, o Exports) error {
	// Empty: a process that was killed leaves what it worked on. If the disk does not let go of
	// it, each export says so.
	work := filepath.Join(c.opts.StoragePath, "exports")
	_ = os.RemoveAll(work)
	limits := o.GitLimits
	limits.Tree = c.opts.ArtifactLimits
	steps := &exportstate.Steps{Client: c.mgr.GetClient(), Git: git.NewClient(git.Options{Limits: limits, TempDir: work}),
		Encrypt: c.opts.Encrypt, Target: c.target, DefaultServiceAccount: c.opts.DefaultServiceAccount, SecretKey: c.key, Clock: clock.RealClock{}}
	setup := &exportstate.Setup{
		Reconciler:            newReconciler(c, exportstate.Kind, steps, func() *v1alpha1.ExportState { return &v1alpha1.ExportState{} }),
		DefaultServiceAccount: c.opts.DefaultServiceAccount, Options: c.controllerOptions(),
	}
	setup.Reconciler.Selector = c.selected()
	return setup.Register(ctx, c.mgr)
}
