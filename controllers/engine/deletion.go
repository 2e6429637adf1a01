package engine

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// LeavingError says that an object is being deleted and not gone.
type LeavingError struct {
	Ref        stacks.Ref
	Finalizers []string
	// Since is when it was deleted, and By the field manager that set the
	// finalizers, as far as that is known.
	Since time.Time
	By    string
	// Remains is what a namespace says is left in it.
	Remains string
}

func (e *LeavingError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is being deleted", e.Ref)
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", e.Since.UTC().Format(time.RFC3339))
	}
	if len(e.Finalizers) > 0 {
		fmt.Fprintf(&b, ": waits for finalizers %v", e.Finalizers)
		if e.By != "" {
			fmt.Fprintf(&b, ", which %s set", e.By)
		}
	}
	if e.Remains != "" {
		fmt.Fprintf(&b, ": %s", e.Remains)
	}
	return b.String()
}

// leaving is what an object that is being deleted waits for.
func leaving(u *unstructured.Unstructured) *LeavingError {
	o, err := live.Project(u)
	if err != nil {
		return &LeavingError{Ref: stacks.Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}, Finalizers: u.GetFinalizers()}
	}
	return leavingObject(&o)
}

func leavingObject(o *live.Object) *LeavingError {
	return &LeavingError{Ref: o.Ref, Finalizers: o.Finalizers, Since: o.DeletionTimestamp, By: o.HeldBy, Remains: o.Remains}
}

// pendingDeletions remembers, per owner, the objects whose deletion the API server accepted.
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

// uid returns the uid of the object that was deleted; empty when none was.
func (d *pendingDeletions) uid(owner, id string) types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byOwner[owner][id]
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
