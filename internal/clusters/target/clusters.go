package target

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
)

const (
	// idleTime is how long a cluster is kept that nobody uses, idleCheck how often that is looked at.
	idleTime  = time.Minute
	idleCheck = 10 * time.Second
)

// Options of Clusters.
type Options struct {
	// Installation is the controller's --owner-id.
	Installation string
	// SecretKey keys hashes of Secrets.
	SecretKey []byte
	Log       logr.Logger
	// Clock of waits; the real one when nil.
	Clock clock.WithTicker
}

// Clusters keeps what is known of other clusters, for as long as somebody uses them. It is
// run by a manager.
type Clusters struct {
	Options

	mu sync.Mutex
	// ctx is set while it runs.
	ctx   context.Context
	byKey map[key]*cluster
	// of has the cluster of each user, byTarget that of each target.
	of          map[string]*cluster
	byTarget    map[*engine.Target]*cluster
	subscribers []func(ownerKey string)
	wg          sync.WaitGroup
}

// NewClusters returns an empty keeper.
func NewClusters(o Options) *Clusters {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Clusters{Options: o, byKey: map[key]*cluster{}, of: map[string]*cluster{}, byTarget: map[*engine.Target]*cluster{}}
}

// Subscribe calls f with the key of each owner that has to look again, because of its objects
// or of its cluster, from several goroutines. f has to return.
func (c *Clusters) Subscribe(f func(ownerKey string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribers = append(c.subscribers, f)
}

// Start implements manager.Runnable.
func (c *Clusters) Start(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	for _, x := range c.byKey {
		c.launch(x)
	}
	c.mu.Unlock()
	tick := c.Clock.NewTicker(idleCheck)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C():
			c.tidy()
		}
	}
	c.mu.Lock()
	c.ctx = nil
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}

// launch is called with the lock held.
func (c *Clusters) launch(x *cluster) {
	if c.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	x.cancel = cancel
	c.wg.Go(func() {
		defer cancel()
		x.run(ctx)
	})
}

// use returns the cluster that a user reaches by a kubeconfig, instead of what it used before.
func (c *Clusters) use(user string, k key, access *kubeconfig.Access) (*cluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.byKey[k]
	if x == nil {
		var err error
		if x, err = c.newCluster(k, access); err != nil {
			return nil, err
		}
		c.byKey[k], c.byTarget[x.target] = x, x
		x.index.Subscribe(c.wake)
		c.launch(x)
	}
	if was := c.of[user]; was != x {
		if was != nil {
			was.leave(user, c.Clock.Now())
		}
		c.of[user], x.users[user], x.idleSince = x, struct{}{}, time.Time{}
	}
	return x, nil
}

// release says that a user uses no cluster any more.
func (c *Clusters) release(user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.of[user]; x != nil {
		x.leave(user, c.Clock.Now())
		delete(c.of, user)
	}
}

// at is the cluster of a target; nil: it is not kept any more.
func (c *Clusters) at(t *engine.Target) *cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byTarget[t]
}

// tidy gives up the clusters that nobody has used for a while.
func (c *Clusters) tidy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, x := range c.byKey {
		if len(x.users) > 0 || c.Clock.Since(x.idleSince) < idleTime {
			continue
		}
		if x.cancel != nil {
			x.cancel()
		}
		delete(c.byKey, k)
		delete(c.byTarget, x.target)
	}
}

// gateChanged tells the users of a cluster that it answers, or why it does not.
func (c *Clusters) gateChanged(x *cluster, open bool) {
	if open {
		x.kinds.served.Reset() // what was missed meanwhile
		x.kinds.open()
		x.index.WakeAll()
	}
	c.tell(x)
}

// tell wakes every user of a cluster.
func (c *Clusters) tell(x *cluster) {
	c.mu.Lock()
	users := slices.Sorted(maps.Keys(x.users))
	c.mu.Unlock()
	for _, u := range users {
		c.wake(u)
	}
}

// wake wakes an owner.
func (c *Clusters) wake(ownerKey string) {
	c.mu.Lock()
	subscribers := c.subscribers
	c.mu.Unlock()
	for _, f := range subscribers {
		f(ownerKey)
	}
}
