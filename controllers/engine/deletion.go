package engine

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// beingDeleted returns the error for an object whose deletion is in progress.
func beingDeleted(u *unstructured.Unstructured) *plan.BeingDeletedError {
	o, err := live.Project(u)
	if err != nil {
		return &plan.BeingDeletedError{Ref: stacks.Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}, Finalizers: u.GetFinalizers()}
	}
	return plan.NewBeingDeletedError(&o)
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
