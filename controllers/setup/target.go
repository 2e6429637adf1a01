package setup

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
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
