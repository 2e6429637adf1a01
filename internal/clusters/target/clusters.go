package target

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/internal/clusters/kubeconfig"
)

const (
	// idleTime is how long a cluster without users is kept, idleCheck the interval of the check.
	idleTime  = time.Minute
	idleCheck = 10 * time.Second
)

// Options of Clusters.
type Options struct {
	// Installation is the controller's --owner-id.
	Installation string
	// SecretKey is the key of the HMACs of Secrets.
	SecretKey []byte
	Log       logr.Logger
}

// Clusters holds the entries of remote clusters for as long as they have users. A manager runs it.
type Clusters struct {
	Options

	mu sync.Mutex
	// ctx is set while Clusters runs.
	ctx   context.Context
	byKey map[clusterKey]*clusterEntry
	// byUser maps users to their clusters, byTarget targets to theirs.
	byUser      map[string]*clusterEntry
	byTarget    map[*engine.Target]*clusterEntry
	subscribers []func(ownerKey string)
	wg          sync.WaitGroup
}

// NewClusters returns Clusters without entries.
func NewClusters(o Options) *Clusters {
	return &Clusters{Options: o, byKey: map[clusterKey]*clusterEntry{}, byUser: map[string]*clusterEntry{},
		byTarget: map[*engine.Target]*clusterEntry{}}
}

// Subscribe registers a function that is called with the key of each owner to reconcile, because
// its objects or its cluster changed. f is called concurrently and must not block.
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
		c.startEntry(x)
	}
	c.mu.Unlock()
	tick := time.NewTicker(idleCheck)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			c.removeIdle()
		}
	}
	c.mu.Lock()
	c.ctx = nil
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}

// startEntry runs an entry if Clusters runs. The caller holds c.mu.
func (c *Clusters) startEntry(x *clusterEntry) {
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

// use assigns the cluster of a kubeconfig to a user, in place of its previous one, and returns it.
func (c *Clusters) use(user string, k clusterKey, access *kubeconfig.Access) (*clusterEntry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.byKey[k]
	if x == nil {
		var err error
		if x, err = c.newEntry(k, access); err != nil {
			return nil, err
		}
		c.byKey[k], c.byTarget[x.target] = x, x
		x.index.Subscribe(c.notify)
		c.startEntry(x)
	}
	if was := c.byUser[user]; was != x {
		if was != nil {
			was.removeUser(user)
		}
		c.byUser[user], x.users[user], x.idleSince = x, struct{}{}, time.Time{}
	}
	return x, nil
}

// release removes a user from its cluster.
func (c *Clusters) release(user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.byUser[user]; x != nil {
		x.removeUser(user)
		delete(c.byUser, user)
	}
}

// entryFor returns the entry of a target; nil if it was removed.
func (c *Clusters) entryFor(t *engine.Target) *clusterEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byTarget[t]
}

// removeIdle removes the clusters that have had no user for idleTime.
func (c *Clusters) removeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, x := range c.byKey {
		if len(x.users) > 0 || time.Since(x.idleSince) < idleTime {
			continue
		}
		if x.cancel != nil {
			x.cancel()
		}
		delete(c.byKey, k)
		delete(c.byTarget, x.target)
	}
}

// availabilityChanged notifies the users of a cluster that it answers, or why it does not.
func (c *Clusters) availabilityChanged(x *clusterEntry, available bool) {
	if available {
		x.kinds.discovery.Invalidate() // changes may have been missed meanwhile
		signal(x.kinds.available)
		x.index.WakeAll()
	}
	c.notifyUsers(x)
}

// notifyUsers calls the subscribers for every user of a cluster.
func (c *Clusters) notifyUsers(x *clusterEntry) {
	c.mu.Lock()
	users := slices.Sorted(maps.Keys(x.users))
	c.mu.Unlock()
	for _, u := range users {
		c.notify(u)
	}
}

// notify calls the subscribers for an owner.
func (c *Clusters) notify(ownerKey string) {
	c.mu.Lock()
	subscribers := c.subscribers
	c.mu.Unlock()
	for _, f := range subscribers {
		f(ownerKey)
	}
}
