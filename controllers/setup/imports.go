package setup

import (
	"context"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/importstate"
)

// AddImports adds the reconciler of ImportState.
func (c *Controllers) AddImports(ctx context.Context) error {
	steps := &importstate.Steps{Client: c.mgr.GetClient(), Content: c.content, Decrypt: c.opts.Decrypt,
		Target:                c.localTarget,
		DefaultServiceAccount: c.opts.DefaultServiceAccount, SecretKey: c.key, Selector: c.opts.Selector,
		Clock: realClock}
	setup := &importstate.Setup{
		Reconciler: newReconciler[v1alpha1.ImportState, v1alpha1.ImportStateList](c, v1alpha1.ImportStateKind, steps),
		Discovery:  c.discovery, DefaultServiceAccount: c.opts.DefaultServiceAccount,
	}
	return setup.Register(ctx, c.mgr)
}
