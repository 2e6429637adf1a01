package engine

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/live"
)

// TerminatingError says that a namespace is being deleted, so that nothing can
// be made in it.
type TerminatingError struct {
	Namespace string
	// Why it is not gone, as far as it says so.
	Why string
}

func (e *TerminatingError) Error() string {
	if e.Why == "" {
		return fmt.Sprintf("namespace %s is terminating", e.Namespace)
	}
	return fmt.Sprintf("namespace %s is terminating: %s", e.Namespace, e.Why)
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// terminates notes that a namespace is being deleted, and says what to wait for.
func (a *actor) terminates(ctx context.Context, act *Action, cause error) result {
	a.engine.terminating.record(a.owner.Key().String(), act.Item.Namespace)
	if r := a.enter(ctx, act); r != nil {
		return *r
	}
	return a.failed(act, cause)
}

// place is what one GET told in this pass about a namespace.
type place struct {
	uid    types.UID
	absent bool
	err    error
}

// enter is asked before an object is made; nil is yes. One GET a pass tells that
// the namespace terminates, instead of a write for each object that belongs in
// it; and that a shared one was replaced by somebody else's, which does not name
// the owner as its user.
func (a *actor) enter(ctx context.Context, act *Action) *result {
	ns := act.Item.Namespace
	shared := a.sharedEntry(ns)
	replaced := act.Reason == Missing && shared != nil // what went may have gone with its namespace
	if !replaced && !a.engine.terminating.has(a.owner.Key().String(), ns) {
		return nil
	}
	at := a.place(ctx, ns)
	switch {
	case at.err != nil:
		return &result{err: at.err}
	case shared != nil && (at.absent || at.uid != "" && at.uid != shared.UID):
		return &result{again: true, lost: shared.ID}
	default:
		return nil
	}
}

// place looks at a namespace, once a pass if it is there. It has no uid when it
// may not be looked at.
func (a *actor) place(ctx context.Context, ns string) place {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, asked := a.places[ns]; asked {
		return at
	}
	if a.places == nil {
		a.places = map[string]place{}
	}
	u, err := a.client.Resource(namespaces).Get(ctx, ns, metav1.GetOptions{})
	at, owner := place{}, a.owner.Key().String()
	switch {
	case apierrors.IsForbidden(err) && a.engine.terminating.has(owner, ns):
		// The account may not look: one object finds out for all others.
		a.places[ns] = place{err: &TerminatingError{Namespace: ns}}
		a.engine.terminating.reset(owner, ns)
		return at
	case apierrors.IsForbidden(err):
	case apierrors.IsNotFound(err):
		a.engine.terminating.reset(owner, ns)
		return place{absent: true} // it may be there the next time
	case err != nil:
		at.err = err
	case u.GetDeletionTimestamp() != nil:
		a.engine.terminating.record(owner, ns)
		at.err = &TerminatingError{Namespace: ns, Why: live.Remains(u)}
	default:
		at.uid = u.GetUID()
		a.engine.terminating.reset(owner, ns)
	}
	a.places[ns] = at
	return at
}

// terminatingNamespaces remembers, per owner, the namespaces that were seen to terminate.
type terminatingNamespaces struct {
	mu      sync.Mutex
	byOwner map[string]map[string]bool
}

func newTerminatingNamespaces() *terminatingNamespaces {
	return &terminatingNamespaces{byOwner: map[string]map[string]bool{}}
}

func (n *terminatingNamespaces) record(owner, namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byOwner[owner] == nil {
		n.byOwner[owner] = map[string]bool{}
	}
	n.byOwner[owner][namespace] = true
}

func (n *terminatingNamespaces) has(owner, namespace string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byOwner[owner][namespace]
}

func (n *terminatingNamespaces) reset(owner, namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byOwner[owner], namespace)
}

func (n *terminatingNamespaces) resetAll(owner string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byOwner, owner)
}
