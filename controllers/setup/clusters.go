package setup

import (
	"context"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/cluster"
)

// AddClusters adds the reconciler of KsctlCluster.
func (c *Controllers) AddClusters(ctx context.Context) error {
	prober := cluster.NewProber(realClock)
	steps := &cluster.Steps{Client: c.mgr.GetClient(), Direct: c.mgr.GetAPIReader(), Target: c.localTarget,
		Prober: prober, Clock: realClock,
		DefaultServiceAccount: c.opts.DefaultServiceAccount, ArgoCDNamespaces: c.opts.ArgoCDNamespaces,
		AllowInsecure: c.opts.InsecureKubeConfigTLS}
	setup := &cluster.Setup{
		Reconciler: newReconciler[clusterv1.KsctlCluster, clusterv1.KsctlClusterList](c, clusterv1.KsctlClusterKind,
			steps),
		Prober: prober, DefaultServiceAccount: c.opts.DefaultServiceAccount,
	}
	return setup.Register(ctx, c.mgr)
}
