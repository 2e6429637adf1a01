package engine

import (
	"context"
	"fmt"

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
	a.engine.holds.terminates(a.owner.Key().String(), act.Item.Namespace)
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
	if !replaced && !a.engine.holds.isTerminating(a.owner.Key().String(), ns) {
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
	case apierrors.IsForbidden(err) && a.engine.holds.isTerminating(owner, ns):
		// The account may not look: one object finds out for all others.
		a.places[ns] = place{err: &TerminatingError{Namespace: ns}}
		a.engine.holds.terminated(owner, ns)
		return at
	case apierrors.IsForbidden(err):
	case apierrors.IsNotFound(err):
		a.engine.holds.terminated(owner, ns)
		return place{absent: true} // it may be there the next time
	case err != nil:
		at.err = err
	case u.GetDeletionTimestamp() != nil:
		a.engine.holds.terminates(owner, ns)
		at.err = &TerminatingError{Namespace: ns, Why: live.Remains(u)}
	default:
		at.uid = u.GetUID()
		a.engine.holds.terminated(owner, ns)
	}
	a.places[ns] = at
	return at
}

// terminates notes that nothing can be made in a namespace now.
func (h *holds) terminates(owner, namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.terminating[owner] == nil {
		h.terminating[owner] = map[string]bool{}
	}
	h.terminating[owner][namespace] = true
}

func (h *holds) isTerminating(owner, namespace string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.terminating[owner][namespace]
}

func (h *holds) terminated(owner, namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.terminating[owner], namespace)
}
