package setup

import (
	"context"

	"k8s.io/utils/clock"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/cluster"
)

// AddClusters adds the reconciler of KsctlCluster.
func (c *Controllers) AddClusters(ctx context.Context) error {
	prober := &cluster.Prober{Clock: clock.RealClock{}}
	steps := &cluster.Steps{Client: c.mgr.GetClient(), Direct: c.mgr.GetAPIReader(), Target: c.localTarget, Prober: prober, Clock: clock.RealClock{},
		DefaultServiceAccount: c.opts.DefaultServiceAccount, ArgoCDNamespaces: c.opts.ArgoCDNamespaces, AllowInsecure: c.opts.InsecureKubeConfigTLS}
	setup := &cluster.Setup{
		Reconciler: newReconciler(c, clusterv1.KsctlClusterKind, steps, func() *clusterv1.KsctlCluster { return &clusterv1.KsctlCluster{} }),
		Prober:     prober, DefaultServiceAccount: c.opts.DefaultServiceAccount, Options: c.controllerOptions(),
	}
	setup.Reconciler.Selector = c.selectorPredicate()
	return setup.Register(ctx, c.mgr)
}
