package target

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
	"github.com/ksctl/gitops/internal/clusters/probe"
)

// key is one way to reach a cluster. With another kubeconfig it may be another one.
type key struct {
	id  string
	sum [sha256.Size]byte
}

// cluster is what is kept of one.
type cluster struct {
	key    key
	gate   *gate
	index  *live.Index
	kinds  *kinds
	target *engine.Target
	// streams is a client whose requests may take as long as they do.
	streams *engine.Client

	// Guarded by Clusters.mu.
	users     map[string]struct{}
	idleSince time.Time
	cancel    context.CancelFunc
}

// newCluster prepares what is kept of a cluster. Nothing is asked until run.
func (c *Clusters) newCluster(k key, access *kubeconfig.Access) (*cluster, error) {
	cfg, err := access.Config()
	if err != nil {
		return nil, fail(KubeConfigRefusedReason, "%s: %w", People(k.id), err)
	}
	cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	x := &cluster{key: k, users: map[string]struct{}{}}
	x.gate = &gate{id: k.id, cfg: cfg, clock: c.Clock, ask: probe.Ask, connect: connect, doubts: make(chan struct{}, 1), wishes: make(chan struct{}, 1),
		changed: func(open bool) { c.gateChanged(x, open) }}
	// Nothing but the gate knows the credentials.
	through := &rest.Config{Host: cfg.Host, APIPath: cfg.APIPath, Transport: x.gate, QPS: -1, Timeout: requestTimeout}
	if x.index, err = live.New(through, live.Options{Owner: c.Installation, SecretKey: c.SecretKey, Clock: c.Clock,
		Log: c.Log.WithName("index").WithValues("cluster", k.id)}); err != nil {
		return nil, err
	}
	dc, err := discovery.NewDiscoveryClientForConfig(through)
	if err != nil {
		return nil, err
	}
	served := engine.NewServerDiscovery(dc)
	client, err := engine.NewClient(through)
	if err != nil {
		return nil, err
	}
	endless := rest.CopyConfig(through)
	endless.Timeout = 0
	if x.streams, err = engine.NewClient(endless); err != nil {
		return nil, err
	}
	x.target = &engine.Target{ClusterID: k.id, Discovery: served, Index: x.index, Capabilities: served.Capabilities,
		Client: func(*types.NamespacedName) (*engine.Client, error) { return client, nil }}
	x.kinds, err = newKinds(through, served, x.index, func() { c.tell(x) })
	return x, err
}

// run keeps a cluster until ctx ends, and returns when everything that it started has ended.
func (x *cluster) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { x.gate.run(ctx) })
	wg.Go(func() { _ = x.index.Start(ctx) }) // it is started once
	wg.Go(func() { x.kinds.run(ctx) })
	wg.Wait()
}

// leave takes a user off a cluster.
func (x *cluster) leave(user string, now time.Time) {
	x.index.Use(user, nil)
	x.index.Await(user, nil)
	if delete(x.users, user); len(x.users) == 0 {
		x.idleSince = now
	}
}
