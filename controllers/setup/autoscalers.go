package setup

import (
	"context"

	"k8s.io/utils/clock"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// AutoScalers says where Cluster Autoscaler is answered.
type AutoScalers struct {
	// Addr is listened at; "": Cluster Autoscaler is not answered, and nothing scales.
	Addr string
	// AdvAddr is what Cluster Autoscaler is told: <host>:<port>.
	AdvAddr string
}

// AddAutoScalers adds the reconciler of KsctlAutoScaler, and the server of node groups.
func (c *Controllers) AddAutoScalers(ctx context.Context, o AutoScalers) error {
	if err := c.addTargets(ctx); err != nil {
		return err
	}
	published := nodegroup.NewClusters()
	provider := &autoscaler.Provider{Client: c.direct, Namespace: c.opts.Namespace, Clock: clock.RealClock{}, Log: c.mgr.GetLogger().WithName("nodegroup")}
	if o.Addr != "" {
		provider.Address = o.AdvAddr
	}
	steps := &autoscaler.Steps{Client: c.mgr.GetClient(), Targets: c.targets, Local: c.target, Installation: c.opts.OwnerID,
		DefaultServiceAccount: c.opts.DefaultServiceAccount, FieldOwner: FieldOwner, Clock: clock.RealClock{},
		Watches: &autoscaler.Watches{}, Links: &autoscaler.Links{Clock: clock.RealClock{}}, Published: published, Provider: provider, Selector: c.opts.Selector, Scaled: c.metrics.Scaled}
	ledger := &autoscaler.Ledger{Steps: steps}
	setup := &autoscaler.Setup{
		Reconciler: newReconciler(c, autoscaler.Kind, steps, func() *clusterv1.KsctlAutoScaler { return &clusterv1.KsctlAutoScaler{} }),
		Steps:      steps, Ledger: ledger, DefaultServiceAccount: c.opts.DefaultServiceAccount, Options: c.controllerOptions(),
	}
	setup.Reconciler.Selector = c.selected()
	if err := setup.Register(ctx, c.mgr); err != nil {
		return err
	}
	if provider.Address == "" {
		return nil
	}
	return c.mgr.Add(&nodegroup.Listener{Addr: o.Addr, Server: nodegroup.NewServer(published, ledger, clock.RealClock{}, nodegroup.Caller),
		Certificate: provider.Certificate, ClientCAs: provider.Clients, Clock: clock.RealClock{}, Log: c.mgr.GetLogger().WithName("nodegroup"), Metrics: c.metrics})
}
