package setup

import (
	"context"

	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/importstate"
)

// AddImports adds the reconciler of ImportState.
func (c *Controllers) AddImports(ctx context.Context) error {
	steps := &importstate.Steps{Client: c.mgr.GetClient(), Content: c.content, Decrypt: c.opts.Decrypt, Target: c.localTarget,
		DefaultServiceAccount: c.opts.DefaultServiceAccount, SecretKey: c.key, Selector: c.opts.Selector, Clock: clock.RealClock{}}
	setup := &importstate.Setup{
		Reconciler: newReconciler(c, v1alpha1.ImportStateKind, steps, func() *v1alpha1.ImportState { return &v1alpha1.ImportState{} }),
		Discovery:  c.discovery, DefaultServiceAccount: c.opts.DefaultServiceAccount, Options: c.controllerOptions(),
	}
	setup.Reconciler.Selector = c.selectorPredicate()
	return setup.Register(ctx, c.mgr)
}
