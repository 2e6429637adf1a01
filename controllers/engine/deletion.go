package engine

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// BeingDeletedError is returned for an object whose deletion is in progress.
type BeingDeletedError struct {
	Ref        stacks.Ref
	Finalizers []string
	// Since is the deletion timestamp, and FinalizerManager the field manager that set the
	// finalizers; zero and empty when they are not known.
	Since            time.Time
	FinalizerManager string
	// Remaining is the remaining content according to the status of a namespace.
	Remaining string
}

func (e *BeingDeletedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is being deleted", e.Ref)
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", e.Since.UTC().Format(time.RFC3339))
	}
	if len(e.Finalizers) > 0 {
		fmt.Fprintf(&b, ": waits for finalizers %v", e.Finalizers)
		if e.FinalizerManager != "" {
			fmt.Fprintf(&b, " set by %s", e.FinalizerManager)
		}
	}
	if e.Remaining != "" {
		fmt.Fprintf(&b, ": %s", e.Remaining)
	}
	return b.String()
}

// beingDeleted returns the error for an object whose deletion is in progress.
func beingDeleted(u *unstructured.Unstructured) *BeingDeletedError {
	o, err := live.Project(u)
	if err != nil {
		return &BeingDeletedError{Ref: stacks.Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}, Finalizers: u.GetFinalizers()}
	}
	return beingDeletedObject(&o)
}

// beingDeletedObject is beingDeleted for an object of the index.
func beingDeletedObject(o *live.Object) *BeingDeletedError {
	return &BeingDeletedError{Ref: o.Ref, Finalizers: o.Finalizers, Since: o.DeletionTimestamp, FinalizerManager: o.FinalizerManager, Remaining: o.DeletionMessage}
}

// pendingDeletions records, per owner, the objects whose deletion the API server accepted.
type pendingDeletions struct {
	mu      sync.Mutex
	byOwner map[string]map[string]types.UID
}

func newPendingDeletions() *pendingDeletions {
	return &pendingDeletions{byOwner: map[string]map[string]types.UID{}}
}

func (d *pendingDeletions) record(owner, id string, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byOwner[owner] == nil {
		d.byOwner[owner] = map[string]types.UID{}
	}
	d.byOwner[owner][id] = uid
}

// has is true for an object that was deleted.
func (d *pendingDeletions) has(owner, id string, uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byOwner[owner][id] == uid
}

// uids returns the uids of the objects of an owner that were deleted, by id.
func (d *pendingDeletions) uids(owner string) map[string]types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.byOwner[owner])
}

func (d *pendingDeletions) reset(owner, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byOwner[owner], id)
}

func (d *pendingDeletions) resetAll(owner string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byOwner, owner)
}
