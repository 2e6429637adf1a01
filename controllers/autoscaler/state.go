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

// entry is the state of one object. It is guarded by state.mu.
type entry struct {
	uid      types.UID
	owner    plan.OwnerKey
	requests []*changeRequest
	// unjoinedSince has the time at which each machine without a node was first seen, by index.
	unjoinedSince map[int32]time.Time
	// secrets are the cached Secrets by name.
	secrets map[string]cachedSecret
	// joined contains the indexes of the machines that have, or had, a node.
	joined map[int32]bool
	// status is the last status of Cluster Autoscaler, statusReadAt the time at which it was read.
	status       *autoscalerStatus
	statusReadAt time.Time
}

// changeRequest is a change that Cluster Autoscaler requests.
type changeRequest struct {
	// ctx is done when the caller no longer waits for the result.
	ctx    context.Context
	decide func(*nodegroup.Cluster) ([]nodegroup.Change, error)
	done   chan error
}

func (b *state) entry(key types.NamespacedName) *entry {
	if b.byKey == nil {
		b.byKey = map[types.NamespacedName]*entry{}
	}
	c := b.byKey[key]
	if c == nil {
		c = &entry{}
		b.byKey[key] = c
	}
	return c
}

// setOwner stores the UID of an object, and the key by which it uses its target cluster.
func (b *state) setOwner(key types.NamespacedName, uid types.UID, owner plan.OwnerKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.entry(key)
	c.uid, c.owner = uid, owner
}

// isCurrent reports whether the stored UID of an object is uid.
func (b *state) isCurrent(key types.NamespacedName, uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entry(key).uid == uid
}

// addRequest adds a request and returns a function that withdraws it. The function returns false if
// drainRequests has returned the request before: then the caller of drainRequests answers it.
func (b *state) addRequest(key types.NamespacedName, r *changeRequest) (withdraw func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.entry(key)
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
	c := b.entry(key)
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
	if last := published.Get(key); last != nil && !errors.Is(last.UnreadyReason, reason) {
		paused := *last
		paused.UnreadyReason = reason
		published.Publish(&paused)
	} else if last == nil {
		published.Publish(&nodegroup.Cluster{Key: key, UnreadyReason: reason})
	}
	answerAll(b.drainRequests(key), unavailable(reason))
}

// trackJoins records which machines have not joined. It returns the overdue ones, and the time at
// which the next one becomes overdue. The machines of an operation in progress are not overdue.
func (b *state) trackJoins(key types.NamespacedName, f *machines, status *clusterv1.KsctlAutoScalerStatus, within time.Duration, now time.Time) (overdue map[int32]bool, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, op := b.entry(key), status.Operation
	unjoined, joined := map[int32]time.Time{}, map[int32]bool{}
	for i := range f.list {
		m := &f.list[i]
		m.joined = m.node != nil || c.joined[m.index]
		if joined[m.index] = m.joined; m.node != nil || isInProgress(op) && int32(i) >= min(op.From, op.DesiredWorkers) {
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
		switch due := since.Add(within); {
		case !now.Before(due):
			if overdue == nil {
				overdue = map[int32]bool{}
			}
			overdue[m.index] = true
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	c.unjoinedSince, c.joined = unjoined, joined
	if isInProgress(op) && op.Kind == clusterv1.OperationScaleUp {
		if due := waitStart(op).Add(within); now.Before(due) && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return overdue, next
}

// forget deletes the entry of an object, and returns the key by which it used its target cluster.
func (b *state) forget(key types.NamespacedName) plan.OwnerKey {
	answerAll(b.drainRequests(key), unavailable(nodegroup.ErrUnknownCluster))
	b.mu.Lock()
	defer b.mu.Unlock()
	owner := b.entry(key).owner
	delete(b.byKey, key)
	return owner
}

// ChangeRecorder lets a reconcile record the changes that Cluster Autoscaler requests.
type ChangeRecorder struct {
	Steps *Steps
	// Enqueue triggers a reconcile of an object.
	Enqueue func(types.NamespacedName)
}

var _ nodegroup.ChangeRecorder = (*ChangeRecorder)(nil)

// RecordChange implements nodegroup.ChangeRecorder.
func (l *ChangeRecorder) RecordChange(ctx context.Context, key types.NamespacedName, decide func(*nodegroup.Cluster) ([]nodegroup.Change, error)) error {
	var obj clusterv1.KsctlAutoScaler
	if err := l.Steps.Client.Get(ctx, key, &obj); err != nil {
		return unavailable(err)
	}
	if obj.Spec.Suspend { // it is not reconciled
		return unavailable(errSuspended)
	}
	r := &changeRequest{ctx: ctx, decide: decide, done: make(chan error, 1)}
	withdraw := l.Steps.state.addRequest(key, r)
	l.Enqueue(key)
	ticker := l.Steps.Clock.NewTicker(suspendCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-r.done:
			return err
		case <-ctx.Done():
			withdraw()
			return unavailable(context.Cause(ctx))
		case <-ticker.C(): // the cache may not have had spec.suspend above
			if err := l.Steps.Client.Get(ctx, key, &obj); err == nil && obj.Spec.Suspend && withdraw() {
				return unavailable(errSuspended)
			}
		}
	}
}

// suspendCheckInterval is how often RecordChange checks whether the object was suspended.
const suspendCheckInterval = 500 * time.Millisecond

// unavailable returns the error of a request while the state of the cluster is uncertain.
func unavailable(err error) error {
	return &nodegroup.RejectedError{Code: codes.Unavailable, Message: err.Error()}
}

// errSuspended rejects the requests for a suspended object.
var errSuspended = errors.New("spec.suspend is true: nothing is scaled")
