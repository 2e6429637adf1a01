package setup

import (
	"context"

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
		ByInstall: &remove.ByInstall{Client: cache, Direct: c.mgr.GetAPIReader(), Engine: c.engine, Targets: c.targets,
			Content:      c.content,
			Installation: c.opts.OwnerID, DefaultServiceAccount: c.opts.DefaultServiceAccount, Clock: realClock},
		BySource: &bysource.Steps{Client: cache, Direct: c.mgr.GetAPIReader(), Content: c.content, Engine: c.engine,
			Targets:      c.targets,
			Chunks:       &engine.ChunkStore{Client: cache, Reader: cache, APIReader: c.mgr.GetAPIReader()},
			Installation: c.opts.OwnerID, DefaultServiceAccount: c.opts.DefaultServiceAccount, SecretKey: c.key,
			Clock: realClock},
	}
	setup := &remove.Setup{
		Reconciler: newReconciler[appsv1.KsctlRemove, appsv1.KsctlRemoveList](c, appsv1.KsctlRemoveKind, steps),
		Index:      c.index, Clusters: c.targets.Clusters,
	}
	return setup.Register(ctx, c.mgr)
}
