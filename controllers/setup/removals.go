package setup

import (
	"context"

	"k8s.io/utils/clock"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/remove"
	"github.com/ksctl/gitops/controllers/remove/bysource"
)

// AddRemovals adds the reconciler of KsctlRemove.
func (c *Controllers) AddRemovals(ctx context.Context) error {
	if err := c.addTargets(ctx); err != nil {
		return err
	}
	cache := c.mgr.GetClient()
	steps := &remove.Steps{
		ByInstall: &remove.ByInstall{Client: cache, Direct: c.mgr.GetAPIReader(), Engine: c.engine, Targets: c.targets, Content: c.content,
			Installation: c.opts.OwnerID, DefaultServiceAccount: c.opts.DefaultServiceAccount, Clock: clock.RealClock{}},
		BySource: &bysource.Steps{Client: cache, Direct: c.mgr.GetAPIReader(), Content: c.content, Engine: c.engine, Targets: c.targets,
			Chunks:       &engine.ChunkStore{Client: cache, Reader: cache, APIReader: c.mgr.GetAPIReader()},
			Installation: c.opts.OwnerID, DefaultServiceAccount: c.opts.DefaultServiceAccount, SecretKey: c.key, Clock: clock.RealClock{}},
	}
	setup := &remove.Setup{
		Reconciler: newReconciler(c, appsv1.KsctlRemoveKind, steps, func() *appsv1.KsctlRemove { return &appsv1.KsctlRemove{} }),
		Index:      c.index, Clusters: c.targets.Clusters, Installation: c.opts.OwnerID,
		Options: c.controllerOptions(),
	}
	// Not restricted by the cache: an install reacts to each KsctlRemove that references it.
	setup.Reconciler.Selector = c.selectorPredicate()
	return setup.Register(ctx, c.mgr)
}
