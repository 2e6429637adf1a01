package autoscaler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// state is the in-memory state of all objects: what is kept between reconciles, and the requests of
// Cluster Autoscaler that are not recorded yet. Only a reconcile records requests, so that the
// status has a single writer.
type state struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]*entry
}

// entry is the state of one object. The requests are guarded by state.mu. The other fields are used
// only by the reconciles of the object, of which there is one at a time.
type entry struct {
	requests []*changeRequest

	uid   types.UID
	owner plan.OwnerKey
	// unjoinedSince has the time at which each machine without a node was first seen, by index.
	unjoinedSince map[int32]time.Time
	// joined contains the indexes of the machines that have, or had, a node.
	joined map[int32]bool
	// secrets are the cached Secrets by name.
	secrets map[string]cachedSecret
	// status is the last status of Cluster Autoscaler, statusReadAt the time at which it was read.
	status       *autoscalerStatus
	statusReadAt time.Time
	// pollingSince is the time from which Cluster Autoscaler is expected to poll; zero if it is
	// not. managed is true if this controller installs it.
	pollingSince time.Time
	managed      bool
}

// changeRequest is a change that Cluster Autoscaler requests.
type changeRequest struct {
	// ctx is done when the caller no longer waits for the result.
	ctx    context.Context
	decide func(*nodegroup.Cluster) ([]nodegroup.Change, error)
	done   chan error
}

// entry returns the entry of an object.
func (b *state) entry(key types.NamespacedName) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lookup(key)
}

// lookup returns the entry of an object. The caller holds the lock.
func (b *state) lookup(key types.NamespacedName) *entry {
	if b.byKey == nil {
		b.byKey = map[types.NamespacedName]*entry{}
	}
	c := b.byKey[key]
	if c == nil {
		c = &entry{secrets: map[string]cachedSecret{}}
		b.byKey[key] = c
	}
	return c
}

// addRequest adds a request and returns a function that withdraws it. The function returns false if
// drainRequests has returned the request before: then the caller of drainRequests answers it.
func (b *state) addRequest(key types.NamespacedName, r *changeRequest) (withdraw func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.lookup(key)
	c.requests = append(c.requests, r)
	return func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		i := slices.Index(c.requests, r)
		if i >= 0 {
			c.requests = slices.Delete(slices.Clone(c.requests), i, i+1)
		}
		return i >= 0
	}
}

// drainRequests removes and returns all requests of an object. The caller must answer them.
func (b *state) drainRequests(key types.NamespacedName) []*changeRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.lookup(key)
	requests := c.requests
	c.requests = nil
	return requests
}

// answerAll sends the result to the callers of all requests.
func answerAll(requests []*changeRequest, err error) {
	for _, r := range requests {
		r.done <- err
	}
}

// pausePolling publishes why the state of a cluster is uncertain, and rejects its open requests.
func (b *state) pausePolling(published *nodegroup.Clusters, key types.NamespacedName, reason error) {
	paused := nodegroup.Cluster{Key: key}
	if last := published.Get(key); last != nil {
		paused = *last
	}
	if !errors.Is(paused.UnreadyReason, reason) {
		paused.UnreadyReason = reason
		published.Publish(&paused)
	}
	answerAll(b.drainRequests(key), unavailable(reason))
}

// trackJoins records which machines have not joined. It returns the overdue ones, and the time at
// which the next one becomes overdue. op is the last operation: while it is in progress, its
// machines are not overdue.
func (c *entry) trackJoins(f *machines, op *clusterv1.ScaleOperation, within time.Duration,
	now time.Time) (overdue map[int32]bool, next time.Time) {
	overdue = map[int32]bool{}
	unjoined, joined := map[int32]time.Time{}, map[int32]bool{}
	for i := range f.list {
		m := &f.list[i]
		m.joined = m.node != nil || c.joined[m.index]
		if joined[m.index] = m.joined; m.node != nil || session.IsInProgress(op) &&
			int32(i) >= min(op.From, op.DesiredWorkers) {
			continue
		}
		since, ok := c.unjoinedSince[m.index]
		if !ok {
			since = now
			// For a machine that was just created, the time starts at the request for it.
			if createdBy(i, op) && !c.joined[m.index] && op.EndedAt != nil && now.Sub(op.EndedAt.Time) < within {
				since = waitStart(op)
			}
		}
		unjoined[m.index] = since
		if due := since.Add(within); now.Before(due) {
			next = earliest(next, due)
		} else {
			overdue[m.index] = true
		}
	}
	c.unjoinedSince, c.joined = unjoined, joined
	if session.IsInProgress(op) && op.Kind == clusterv1.OperationScaleUp {
		if due := waitStart(op).Add(within); now.Before(due) {
			next = earliest(next, due)
		}
	}
	return overdue, next
}

// forget deletes the entry of an object, and returns the key by which it used its target cluster.
func (b *state) forget(key types.NamespacedName) plan.OwnerKey {
	answerAll(b.drainRequests(key), unavailable(nodegroup.ErrUnknownCluster))
	b.mu.Lock()
	defer b.mu.Unlock()
	owner := b.lookup(key).owner
	delete(b.byKey, key)
	return owner
}

var _ nodegroup.ChangeRecorder = (*Steps)(nil)

// RecordChange implements nodegroup.ChangeRecorder. It lets a reconcile record the change.
func (s *Steps) RecordChange(ctx context.Context, key types.NamespacedName,
	decide func(*nodegroup.Cluster) ([]nodegroup.Change, error)) error {
	var obj clusterv1.KsctlAutoScaler
	if err := s.Client.Get(ctx, key, &obj); err != nil {
		return unavailable(err)
	}
	if obj.Spec.Suspend { // it is not reconciled
		return unavailable(errSuspended)
	}
	r := &changeRequest{ctx: ctx, decide: decide, done: make(chan error, 1)}
	withdraw := s.state.addRequest(key, r)
	s.enqueue(key)
	ticker := s.Clock.NewTicker(suspendCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-r.done:
			return err
		case <-ctx.Done():
			withdraw()
			return unavailable(context.Cause(ctx))
		case <-ticker.C(): // the cache may not have had spec.suspend above
			if err := s.Client.Get(ctx, key, &obj); err == nil && obj.Spec.Suspend && withdraw() {
				return unavailable(errSuspended)
			}
		}
	}
}

// earliest returns the earlier of two times. It ignores the zero time.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// suspendCheckInterval is how often RecordChange checks whether the object was suspended.
const suspendCheckInterval = 500 * time.Millisecond

// unavailable returns the error of a request while the state of the cluster is uncertain.
func unavailable(err error) error {
	return &nodegroup.RejectedError{Code: codes.Unavailable, Message: err.Error()}
}

// errSuspended rejects the requests for a suspended object.
var errSuspended = errors.New("spec.suspend is true: nothing is scaled")
