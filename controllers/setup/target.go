package setup

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/internal/clusters/target"
)

// newTarget returns the target of the cluster of the manager.
func newTarget(cfg *rest.Config, index *live.Index) (*engine.Target, *engine.ServerDiscovery, error) {
	dc, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	d := engine.NewServerDiscovery(dc)
	c := &clients{cfg: cfg, byUser: map[string]*engine.Client{}}
	return &engine.Target{ClusterID: plan.LocalCluster, Discovery: d, Index: index,
		Capabilities: d.Capabilities, ClientFor: c.clientFor}, d, nil
}

// clients caches one client per user. The clients share connections, because client-go caches
// transports below the impersonation.
type clients struct {
	cfg *rest.Config

	mu     sync.Mutex
	byUser map[string]*engine.Client // by user name; "" is the controller
}

// clientFor returns a client with the permissions of a service account; nil: those of the
// controller.
func (c *clients) clientFor(account *types.NamespacedName) (*engine.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	user := ""
	if account != nil {
		user = "system:serviceaccount:" + account.Namespace + ":" + account.Name
	}
	if client, ok := c.byUser[user]; ok {
		return client, nil
	}
	cfg := rest.CopyConfig(c.cfg)
	if account != nil { // the API server adds the groups of the service account
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	}
	client, err := engine.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	c.byUser[user] = client
	return client, nil
}

// addTargets adds the target clusters, once for all kinds.
func (c *Controllers) addTargets(ctx context.Context) error {
	if c.targets != nil {
		return nil
	}
	if err := target.IndexFields(ctx, c.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	clusters := target.NewClusters(target.Options{Installation: c.opts.OwnerID, SecretKey: c.key,
		Log: c.mgr.GetLogger()})
	if err := c.mgr.Add(clusters); err != nil {
		return err
	}
	c.targets = &target.Resolver{Cache: c.mgr.GetClient(), Direct: c.mgr.GetAPIReader(), Local: c.localTarget,
		Clusters:         clusters,
		NoCrossNamespace: c.opts.NoCrossNamespaceRefs, AllowInsecure: c.opts.InsecureKubeConfigTLS}
	return nil
}
