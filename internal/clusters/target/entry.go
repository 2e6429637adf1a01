package target

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
	"github.com/ksctl/gitops/internal/clusters/probe"
)

// clusterKey identifies a cluster by its ID and the hash of its kubeconfig: with another
// kubeconfig, the same ID may refer to another cluster.
type clusterKey struct {
	id  string
	sum [sha256.Size]byte
}

// clusterEntry holds the clients, the index and the users of a cluster.
type clusterEntry struct {
	key     clusterKey
	breaker *circuitBreaker
	index   *live.Index
	kinds   *kindWatcher
	target  *engine.Target
	// watchClient is a client without a request timeout, for watches.
	watchClient *engine.Client

	// Guarded by Clusters.mu.
	users     map[string]struct{}
	idleSince time.Time
	cancel    context.CancelFunc
}

// newEntry returns the entry of a cluster. It sends no request before run.
func (c *Clusters) newEntry(k clusterKey, access *kubeconfig.Access) (*clusterEntry, error) {
	cfg, err := access.Config()
	if err != nil {
		return nil, newError(appsv1.KubeConfigRefusedReason, "%s: %w", DisplayName(k.id), err)
	}
	cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	x := &clusterEntry{key: k, users: map[string]struct{}{}}
	x.breaker = &circuitBreaker{id: k.id, cfg: cfg, clock: clock.RealClock{}, probeCluster: probe.Run,
		connect: newConnections, pendingProbes: make(chan struct{}, 1), immediateProbes: make(chan struct{}, 1),
		availabilityChanged: func(open bool) { c.availabilityChanged(x, open) }}
	// Only the circuit breaker has the credentials: it adds them to the requests of all clients.
	config := &rest.Config{Host: cfg.Host, APIPath: cfg.APIPath, Transport: x.breaker, QPS: -1, Timeout: requestTimeout}
	if x.index, err = live.New(config, live.Options{OwnerID: c.Installation, SecretKey: c.SecretKey,
		Log: c.Log.WithName("index").WithValues("cluster", k.id)}); err != nil {
		return nil, err
	}
	dc, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	serverDiscovery := engine.NewServerDiscovery(dc)
	client, err := engine.NewClient(config)
	if err != nil {
		return nil, err
	}
	noTimeout := rest.CopyConfig(config)
	noTimeout.Timeout = 0
	if x.watchClient, err = engine.NewClient(noTimeout); err != nil {
		return nil, err
	}
	x.target = &engine.Target{ClusterID: k.id, Discovery: serverDiscovery, Index: x.index,
		Capabilities: serverDiscovery.Capabilities,
		ClientFor:    func(*types.NamespacedName) (*engine.Client, error) { return client, nil }}
	x.kinds, err = newKindWatcher(config, serverDiscovery, x.index, func() { c.notifyUsers(x) })
	return x, err
}

// run runs the circuit breaker, the index and the kind watcher until ctx ends, and returns when all
// of them have stopped.
func (x *clusterEntry) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { x.breaker.run(ctx) })
	wg.Go(func() { _ = x.index.Start(ctx) }) // it fails only when started twice
	wg.Go(func() { x.kinds.run(ctx) })
	wg.Wait()
}

// removeUser removes a user from the cluster.
func (x *clusterEntry) removeUser(user string) {
	x.index.SetOwnerKinds(user, nil)
	x.index.SetAwaited(user, nil)
	x.index.SetContributed(user, nil)
	if delete(x.users, user); len(x.users) == 0 {
		x.idleSince = time.Now()
	}
}
