package setup

import (
	"context"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// AutoScalerOptions configures the gRPC server for Cluster Autoscaler.
type AutoScalerOptions struct {
	// Addr is the listen address; "" disables the server, and nothing scales.
	Addr string
	// AdvAddr is the advertised address, <host>:<port>, to which Cluster Autoscaler connects.
	AdvAddr string
}

// AddAutoScalers adds the reconciler of KsctlAutoScaler and the gRPC server of the node groups.
func (c *Controllers) AddAutoScalers(ctx context.Context, o AutoScalerOptions) error {
	if err := c.addTargets(ctx); err != nil {
		return err
	}
	published := nodegroup.NewClusters()
	provider := &autoscaler.Certificates{Client: c.direct, Namespace: c.opts.Namespace, Clock: realClock,
		Log: c.mgr.GetLogger().WithName("nodegroup")}
	if o.Addr != "" {
		provider.Address = o.AdvAddr
	}
	steps := &autoscaler.Steps{Client: c.mgr.GetClient(), Targets: c.targets, Local: c.localTarget,
		Installation:          c.opts.OwnerID,
		DefaultServiceAccount: c.opts.DefaultServiceAccount, FieldOwner: FieldOwner, Clock: realClock,
		NodeWatches: &autoscaler.NodeWatches{}, AgentSessions: &session.Sessions{Clock: realClock},
		Published: published, Certificates: provider, Selector: c.opts.Selector,
		OperationEnded: c.metrics.RecordOperation}
	setup := &autoscaler.Setup{
		Reconciler: newReconciler[clusterv1.KsctlAutoScaler, clusterv1.KsctlAutoScalerList](c,
			clusterv1.KsctlAutoScalerKind, steps),
		Steps: steps,
	}
	if err := setup.Register(ctx, c.mgr); err != nil {
		return err
	}
	if provider.Address == "" {
		return nil
	}
	return c.mgr.Add(&nodegroup.Listener{Addr: o.Addr,
		Server:      nodegroup.NewServer(published, steps, realClock, nodegroup.Caller),
		Certificate: provider.Certificate, ClientCAs: provider.ClientCAs, Clock: realClock,
		Log: c.mgr.GetLogger().WithName("nodegroup"), Metrics: c.metrics})
}
