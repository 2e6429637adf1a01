package setup

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/install"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/kind"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
)

// KindOptions configures the reconcilers of KsctlKind and of the kinds that it publishes.
type KindOptions struct {
	// Groups are the API groups in which kinds may be served. The process must have the
	// permissions that it grants: all verbs in these groups, and writes of
	// CustomResourceDefinitions and ClusterRoles.
	Groups []string
}

// AddKinds adds the reconciler of KsctlKind, and that of the objects of the published kinds.
func (c *Controllers) AddKinds(ctx context.Context, o KindOptions) error {
	if err := c.addTargets(ctx); err != nil {
		return err
	}
	depends, err := dependency.New(c.mgr.GetConfig())
	if err != nil {
		return err
	}
	if err := c.mgr.Add(depends); err != nil {
		return err
	}
	kinds := &kind.Kinds{Config: c.mgr.GetConfig(), Mapper: c.mgr.GetRESTMapper(),
		NewReconciler:   c.newObjectReconciler,
		Revisions:       &kind.Revisions{Client: c.direct, Namespace: c.opts.Namespace, Fetcher: c.content.Fetcher},
		NewInstallSteps: func(r kind.InstallRules) kind.InstallSteps { return c.newServedSteps(r, depends) }}
	steps := &kind.Steps{Direct: c.direct, Client: c.mgr.GetClient(), Content: c.content, Kinds: kinds,
		Groups: o.Groups, Installation: c.opts.OwnerID, FieldOwner: FieldOwner}
	setup := &kind.Setup{
		Reconciler: newReconciler[appsv1.KsctlKind, appsv1.KsctlKindList](c, appsv1.KsctlKindKind, steps),
		Steps:      steps, Kinds: kinds, Index: c.index, Clusters: c.targets.Clusters, Discovery: c.discovery,
		Dependencies: depends, Options: c.controllerOptions(),
	}
	return setup.Register(ctx, c.mgr)
}

// newObjectReconciler returns the reconciler of the objects of a published kind.
func (c *Controllers) newObjectReconciler(key string, cached client.Client, direct client.Reader,
	steps reconcile.Steps[*kind.Object]) *reconcile.Reconciler[*kind.Object] {
	r := newReconciler[kind.Object, kind.ObjectList](c, key, steps)
	r.Client, r.Reader = cached, direct
	r.Selector = nil // it selects KsctlKinds, with all of their objects
	return r
}

// newServedSteps returns the steps of the installs of a published kind.
func (c *Controllers) newServedSteps(r kind.InstallRules, depends *dependency.Watcher) *install.Steps {
	return &install.Steps{
		Client: c.mgr.GetClient(), Content: c.content, Engine: c.engine, Targets: c.targets,
		Chunks: &engine.ChunkStore{Client: c.mgr.GetClient(), Reader: c.mgr.GetClient(),
			APIReader: c.mgr.GetAPIReader()},
		Installation: c.opts.OwnerID, DefaultServiceAccount: c.opts.DefaultServiceAccount,
		ConfigsSelected: c.opts.ConfigCacheFiltered, SecretKey: c.key, Clock: realClock,
		Served: &install.ServedKind{Kind: r.Kind, Artifact: r.Artifact, MayUse: r.MayUse,
			MayContain: r.MayContain, Secret: r.Secret, Report: r.Report},
		Plans: handover.NewPlans(clock.RealClock{}), Dependencies: kind.DependenciesOf(r.Kind, depends),
		RecordDriftCorrections: func(types.NamespacedName, int) {},
	}
}
