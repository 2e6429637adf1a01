package setup

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// newTarget is the cluster that the controller runs against.
func newTarget(cfg *rest.Config, index *live.Index) (*engine.Target, *engine.ServerDiscovery, error) {
	dc, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	d := engine.NewServerDiscovery(dc)
	c := &clients{cfg: cfg, byAccount: map[types.NamespacedName]*engine.Client{}}
	return &engine.Target{ClusterID: engine.LocalCluster, Discovery: d, Index: index,
		Capabilities: d.Capabilities, Client: c.as}, d, nil
}

// clients keeps a client per account. They share connections: client-go caches
// transports below the impersonation.
type clients struct {
	cfg *rest.Config

	mu        sync.Mutex
	own       *engine.Client
	byAccount map[types.NamespacedName]*engine.Client
}

// as returns a client with the rights of an account; nil: the controller's own.
func (c *clients) as(account *types.NamespacedName) (*engine.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if account == nil {
		if c.own == nil {
			own, err := engine.NewClient(c.cfg)
			if err != nil {
				return nil, err
			}
			c.own = own
		}
		return c.own, nil
	}
	if client, ok := c.byAccount[*account]; ok {
		return client, nil
	}
	cfg := rest.CopyConfig(c.cfg)
	// The API server adds the groups of a service account itself.
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + account.Namespace + ":" + account.Name}
	client, err := engine.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	c.byAccount[*account] = client
	return client, nil
}

// addTargets has the clusters that objects are applied to.
func (c *Controllers) addTargets(ctx context.Context) error {
	if c.targets != nil {
		return nil
	}
	if err := target.Index(ctx, c.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	clusters := target.NewClusters(target.Options{Installation: c.opts.OwnerID, SecretKey: c.key, Log: c.mgr.GetLogger()})
	if err := c.mgr.Add(clusters); err != nil {
		return err
	}
	c.targets = &target.Targets{Cache: c.mgr.GetClient(), Direct: c.mgr.GetAPIReader(), Local: c.target, Clusters: clusters,
		NoCrossNamespace: c.opts.NoCrossNamespaceRefs, AllowInsecure: c.opts.InsecureKubeConfigTLS}
	return nil
}
