package engine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// NamespaceTerminatingError is returned when an object cannot be created because its namespace is
// being deleted.
type NamespaceTerminatingError struct {
	Namespace string
	// Message is the reason why the namespace is not gone, if its status has one.
	Message string
}

func (e *NamespaceTerminatingError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("namespace %s is terminating", e.Namespace)
	}
	return fmt.Sprintf("namespace %s is terminating: %s", e.Namespace, e.Message)
}

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// handleTerminatingNamespace records that a namespace is being deleted, and returns the error with
// the reason.
func (a *executor) handleTerminatingNamespace(ctx context.Context, act *plan.Action, cause error) actionResult {
	a.engine.terminating.record(a.ownerKey, act.Item.Namespace, true)
	if r := a.checkNamespace(ctx, act); r != nil {
		return *r
	}
	return a.errorResult(act, cause)
}

// namespaceState is the state of a namespace according to the GET of this pass.
type namespaceState struct {
	uid    types.UID
	absent bool
	err    error
}

// checkNamespace is called before an object is created. It returns nil if the namespace is usable,
// else the result of the create. With one GET in a pass it finds a terminating namespace, instead
// of a failing write for each object in it; and a shared namespace that was replaced by one of
// others, which lacks the annotation of the owner.
func (a *executor) checkNamespace(ctx context.Context, act *plan.Action) *actionResult {
	ns := act.Item.Namespace
	shared := a.sharedNamespaceEntry(ns)
	replaced := act.Reason == plan.ReasonMissing && shared != nil // the object may have been deleted with its namespace
	if !replaced && !a.engine.terminating.get(a.ownerKey, ns) {
		return nil
	}
	state := a.lookUpNamespace(ctx, ns)
	switch {
	case state.err != nil:
		return &actionResult{err: state.err}
	case shared != nil && (state.absent || state.uid != "" && state.uid != shared.UID):
		return &actionResult{replan: true, lostNamespace: shared.ID}
	default:
		return nil
	}
}

// lookUpNamespace reads a namespace; an existing one once in a pass. The state has no uid if the
// account may not read the namespace.
func (a *executor) lookUpNamespace(ctx context.Context, ns string) namespaceState {
	a.mu.Lock()
	defer a.mu.Unlock()
	if state, asked := a.namespaceStates[ns]; asked {
		return state
	}
	if a.namespaceStates == nil {
		a.namespaceStates = map[string]namespaceState{}
	}
	u, err := a.client.Resource(namespaceResource).Get(ctx, ns, metav1.GetOptions{})
	var state namespaceState
	switch {
	case apierrors.IsForbidden(err) && a.engine.terminating.get(a.ownerKey, ns):
		// The account may not read it: one create finds out for all other objects.
		a.namespaceStates[ns] = namespaceState{err: &NamespaceTerminatingError{Namespace: ns}}
		a.engine.terminating.reset(a.ownerKey, ns)
		return state
	case apierrors.IsForbidden(err):
	case apierrors.IsNotFound(err):
		a.engine.terminating.reset(a.ownerKey, ns)
		return namespaceState{absent: true} // not cached: it may exist at the next call
	case err != nil:
		state.err = err
	case u.GetDeletionTimestamp() != nil:
		a.engine.terminating.record(a.ownerKey, ns, true)
		state.err = &NamespaceTerminatingError{Namespace: ns, Message: live.NamespaceDeletionMessage(u)}
	default:
		state.uid = u.GetUID()
		a.engine.terminating.reset(a.ownerKey, ns)
	}
	a.namespaceStates[ns] = state
	return state
}
