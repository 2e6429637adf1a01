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
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/internal/scaling/nodegroup"
)

// board is what is remembered of objects between reconciles, and what Cluster Autoscaler asks
// for until a reconcile has written it down: one at a time, as only a reconcile writes.
type board struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]*card
}

// card is that of one object. It is guarded by board.mu.
type card struct {
	uid   types.UID
	user  engine.OwnerKey
	asked []*request
	// unjoined is since when machines are known that have not joined, by their index.
	unjoined map[int32]time.Time
	// memos are Secrets by their names.
	memos map[string]memo
	// joined are machines that have had a node.
	joined map[int32]bool
	// probe is what Cluster Autoscaler said of itself, probed when that was read.
	probe  *probe
	probed time.Time
}

// request is what Cluster Autoscaler asks for.
type request struct {
	// ctx ends when nobody waits for it any more.
	ctx    context.Context
	decide func(*nodegroup.Cluster) ([]nodegroup.Change, error)
	done   chan error
}

func (b *board) card(key types.NamespacedName) *card {
	if b.byKey == nil {
		b.byKey = map[types.NamespacedName]*card{}
	}
	c := b.byKey[key]
	if c == nil {
		c = &card{}
		b.byKey[key] = c
	}
	return c
}

// uses remembers by what name an object uses its cluster.
func (b *board) uses(key types.NamespacedName, uid types.UID, user engine.OwnerKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.card(key)
	c.uid, c.user = uid, user
}

// is true for the object that is remembered by a name.
func (b *board) is(key types.NamespacedName, uid types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.card(key).uid == uid
}

// ask adds a request, and returns what takes it back; false: somebody else has it, and answers it.
func (b *board) ask(key types.NamespacedName, r *request) (back func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.card(key)
	c.asked = append(c.asked, r)
	return func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		i := slices.Index(c.asked, r)
		if i >= 0 {
			c.asked = slices.Delete(slices.Clone(c.asked), i, i+1)
		}
		return i >= 0
	}
}

// take returns what is asked for. Whoever takes it answers it.
func (b *board) take(key types.NamespacedName) []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.card(key)
	asked := c.asked
	c.asked = nil
	return asked
}

// answerAll tells who asks how that ended.
func answerAll(asked []*request, err error) {
	for _, r := range asked {
		r.done <- err
	}
}

// silence has Cluster Autoscaler wait until something is published again.
func (b *board) silence(published *nodegroup.Clusters, key types.NamespacedName, why error) {
	if was := published.Get(key); was != nil && !errors.Is(was.Unready, why) {
		quiet := *was
		quiet.Unready = why
		published.Publish(&quiet)
	} else if was == nil {
		published.Publish(&nodegroup.Cluster{Key: key, Unready: why})
	}
	answerAll(b.take(key), unready(why))
}

// joins takes note of machines that have not joined, and says which of them are late, and when
// the next one is. While an operation is at work its machines have time.
func (b *board) joins(key types.NamespacedName, f *fleet, status *clusterv1.KsctlAutoScalerStatus, within time.Duration, now time.Time) (late map[int32]bool, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, op := b.card(key), status.Operation
	unjoined, joined := map[int32]time.Time{}, map[int32]bool{}
	for i := range f.machines {
		m := &f.machines[i]
		m.joined = m.node != nil || c.joined[m.index]
		if joined[m.index] = m.joined; m.node != nil || atWork(op) && int32(i) >= min(op.From, op.DesiredWorkers) {
			continue
		}
		since, ok := c.unjoined[m.index]
		if !ok {
			since = now
			// One that was just made is waited for from when it was asked for.
			if made(i, op) && !c.joined[m.index] && op.EndedAt != nil && now.Sub(op.EndedAt.Time) < within {
				since = askedAt(op)
			}
		}
		unjoined[m.index] = since
		switch due := since.Add(within); {
		case !now.Before(due):
			if late == nil {
				late = map[int32]bool{}
			}
			late[m.index] = true
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	c.unjoined, c.joined = unjoined, joined
	if atWork(op) && op.Kind == clusterv1.OperationScaleUp {
		if due := askedAt(op).Add(within); now.Before(due) && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return late, next
}

// forget drops what is remembered of an object, and returns the name by which it used its cluster.
func (b *board) forget(key types.NamespacedName) engine.OwnerKey {
	answerAll(b.take(key), unready(nodegroup.ErrUnknown))
	b.mu.Lock()
	defer b.mu.Unlock()
	user := b.card(key).user
	delete(b.byKey, key)
	return user
}

// Ledger has what Cluster Autoscaler asks for written down by a reconcile.
type Ledger struct {
	Steps *Steps
	// Wake has an object reconciled.
	Wake func(types.NamespacedName)
}

var _ nodegroup.Ledger = (*Ledger)(nil)

// Change implements nodegroup.Ledger.
func (l *Ledger) Change(ctx context.Context, key types.NamespacedName, decide func(*nodegroup.Cluster) ([]nodegroup.Change, error)) error {
	var obj clusterv1.KsctlAutoScaler
	if err := l.Steps.Client.Get(ctx, key, &obj); err != nil {
		return unready(err)
	}
	if obj.Spec.Suspend { // nothing reconciles it
		return unready(errSuspended)
	}
	r := &request{ctx: ctx, decide: decide, done: make(chan error, 1)}
	back := l.Steps.board.ask(key, r)
	l.Wake(key)
	look := l.Steps.Clock.NewTicker(lookInterval)
	defer look.Stop()
	for {
		select {
		case err := <-r.done:
			return err
		case <-ctx.Done():
			back()
			return unready(context.Cause(ctx))
		case <-look.C(): // it may have been suspended when the cache did not know yet
			if err := l.Steps.Client.Get(ctx, key, &obj); err == nil && obj.Spec.Suspend && back() {
				return unready(errSuspended)
			}
		}
	}
}

// lookInterval is how often it is looked at whether a request can still be heard.
const lookInterval = 500 * time.Millisecond

// unready is the answer of a cluster of which nothing can be said now.
func unready(err error) error {
	return &nodegroup.Refusal{Code: codes.Unavailable, Message: err.Error()}
}

// errSuspended is why nothing that is asked for is done.
var errSuspended = errors.New("spec.suspend is true: nothing is scaled")
