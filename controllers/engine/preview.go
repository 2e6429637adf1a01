package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/stacks"
)

// ReadOnlyOwner is an owner for read-only operations on its inventory, by other controllers than
// its own.
type ReadOnlyOwner struct {
	OwnerKey plan.OwnerKey
	Entries  *plan.Inventory
	Policy   plan.Policies
}

var _ Owner = (*ReadOnlyOwner)(nil)

var errReadOnly = errors.New("the owner is read-only")

// Key implements Owner.
func (v *ReadOnlyOwner) Key() plan.OwnerKey { return v.OwnerKey }

// Inventory implements Owner.
func (v *ReadOnlyOwner) Inventory() *plan.Inventory { return v.Entries }

// Policies implements Owner.
func (v *ReadOnlyOwner) Policies() plan.Policies { return v.Policy }

// Manifest implements Owner.
func (v *ReadOnlyOwner) Manifest(context.Context, *plan.Item) (json.RawMessage, error) {
	return nil, errReadOnly
}

// Persist implements Owner.
func (v *ReadOnlyOwner) Persist(context.Context) error { return errReadOnly }

// RemovalItem describes the removal of one object.
type RemovalItem struct {
	Entry  appsv1.InventoryEntry
	Ref    stacks.Ref
	Reason plan.Reason
	// Message is for users; empty for an object that only waits for the steps before it.
	Message string
}

// RemovalPreview describes what a removal would do in the current state of the cluster.
type RemovalPreview struct {
	// Steps are the steps in their order. The objects of one step are removed concurrently.
	Steps [][]RemovalItem
	// Kept are objects that would be left in the cluster, Blockers objects that would block the
	// removal.
	Kept, Blockers []RemovalItem
	// SyncError is not nil while the index may not know all objects.
	SyncError error
}

// WatchKinds makes the index watch the kinds of the owner's inventory.
func (e *Engine) WatchKinds(ctx context.Context, t *Target, o Owner) {
	e.newExecutor(Pass{Owner: o, Target: t}).setOwnerKinds(ctx)
}

// MayHaveObject is false when an inventory entry certainly has no object that would be removed with
// it: it was never created, is deleted or being deleted, or belongs to another owner. Call
// WatchKinds first, so that the index knows the kind.
func (e *Engine) MayHaveObject(ctx context.Context, t *Target, o Owner, id string) bool {
	entry, listed := o.Inventory().Get(id)
	ref, err := stacks.ParseID(id)
	if !listed || err != nil {
		return false
	}
	var unserved *plan.NotServedError
	if _, err := t.Discovery.Resolve(ctx, ref.Group, entry.Version, ref.Kind); errors.As(err, &unserved) {
		return false
	}
	if t.Index.Synced(ref.GroupKind()) != nil {
		return true // it may exist
	}
	l, there := t.Index.Get(ref)
	return there && !l.Deleting && l.Mark.Owner == o.Key().String()
}

// PreviewRemoval returns what the removal of the objects with a removal request would do. It
// changes nothing. It reads CustomResourceDefinitions and namespaces with the permissions of the
// client.
func (e *Engine) PreviewRemoval(ctx context.Context, p Pass) (*RemovalPreview, error) {
	r, a := &RemovalPreview{}, e.newExecutor(p)
	if r.SyncError = a.syncError(ctx); r.SyncError != nil {
		return r, nil //nolint:nilerr // the preview contains the error
	}
	in, _ := a.snapshot()
	a.retained, a.preview = plan.RetainedIDs(&in.Policies, in.Inventory), true
	jobs, _ := plan.RequestedJobs(in)
	for _, e := range jobs {
		if ref, err := stacks.ParseID(e.ID); err == nil {
			r.Blockers = append(r.Blockers,
				RemovalItem{Entry: e, Ref: ref, Reason: plan.ReasonPreRemove, Message: ref.String() +
					" runs before anything is removed"})
		}
	}
	for _, step := range plan.RequestedRemovals(in) {
		var removed []RemovalItem
		for i := range step {
			act := &step[i]
			if err := a.previewDeletion(ctx, act); err != nil {
				return nil, err
			}
			item := removalItem(act)
			switch act.Verb {
			case plan.VerbRelease, plan.VerbDrop:
				r.Kept = append(r.Kept, item)
				continue
			case plan.VerbWait:
				r.Blockers = append(r.Blockers, item)
			}
			removed = append(removed, item)
		}
		if len(removed) > 0 {
			r.Steps = append(r.Steps, removed)
		}
	}
	return r, nil
}

// PreviewObstacles returns the objects of an inventory that would not be deleted because of objects
// of others: namespaces that contain some would be kept, and CustomResourceDefinitions that have
// some would block the removal. Other obstacles are not checked: the caller knows them.
func (e *Engine) PreviewObstacles(ctx context.Context, p Pass) (kept, blockers []RemovalItem, err error) {
	a := e.newExecutor(p)
	a.preview = true
	for _, entry := range p.Owner.Inventory().Entries() {
		if _, err := stacks.ParseID(entry.ID); err != nil {
			continue // not a valid id
		}
		act := plan.Action{Verb: plan.VerbDelete, Reason: plan.ReasonRemoved, Entry: entry}
		if err := a.previewDeletion(ctx, &act); err != nil {
			return nil, nil, err
		}
		switch act.Verb {
		case plan.VerbRelease:
			kept = append(kept, removalItem(&act))
		case plan.VerbWait:
			blockers = append(blockers, removalItem(&act))
		}
	}
	return kept, blockers, nil
}

// previewDeletion finds out what would prevent a planned deletion, and changes the action
// accordingly.
func (a *executor) previewDeletion(ctx context.Context, act *plan.Action) error {
	if act.Verb != plan.VerbDelete {
		return nil
	}
	ref := act.Ref()
	if act.Live != nil && len(act.Live.Finalizers) > 0 {
		act.Verb, act.Reason = plan.VerbWait, plan.ReasonFinalizers
		act.Message = fmt.Sprintf("%s has finalizers %s: the controllers that set them must remove them", ref,
			strings.Join(act.Live.Finalizers, ", "))
		return nil
	}
	if a.client == nil {
		return nil
	}
	var keepReason string
	var err error
	if act.Entry.State == appsv1.EntryShared {
		keepReason, err = a.sharedKeepReason(ctx, ref)
	} else {
		keepReason, err = a.checkDeletion(ctx, act, ref)
	}
	_, protected := errors.AsType[*plan.ProtectedError](err)
	switch {
	case err != nil && isFatal(err):
		return err
	case protected:
		act.Verb, act.Reason, act.Message = plan.VerbWait, plan.ReasonProtected, err.Error()
	case err != nil:
		act.Verb, act.Reason, act.Message = plan.VerbWait, plan.ReasonOwnedByOther, err.Error()
	case keepReason != "":
		act.Verb, act.Reason, act.Message = plan.VerbRelease, plan.ReasonKept, keepReason
	}
	return nil
}

// sharedKeepReason returns why a shared namespace would stay; empty when it would be deleted.
func (a *executor) sharedKeepReason(ctx context.Context, ref stacks.Ref) (string, error) {
	u, err := a.client.Resource(namespaceResource).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return a.namespaceKeepReason(ctx, u)
}

// RemovalProgress returns the objects with a removal request that are still in the inventory, with
// the reason why each is. It sends no requests.
func (e *Engine) RemovalProgress(t *Target, o Owner) []RemovalItem {
	in, _ := e.newExecutor(Pass{Owner: o, Target: t}).snapshot()
	jobs := map[string]*plan.Action{}
	_, waits := plan.RequestedJobs(in)
	for i := range waits {
		jobs[waits[i].Entry.ID] = &waits[i]
	}
	var out []RemovalItem
	for _, step := range plan.RequestedRemovals(in) {
		for i := range step {
			act := &step[i]
			if wait := jobs[act.Entry.ID]; wait != nil {
				act = wait
			}
			out = append(out, removalItem(act))
		}
	}
	return out
}

// removalItem describes the planned action of a removal.
func removalItem(act *plan.Action) RemovalItem {
	r := RemovalItem{Entry: act.Entry, Ref: act.Ref(), Reason: act.Reason, Message: act.Message}
	switch {
	case act.Verb == plan.VerbDelete, act.Verb == plan.VerbWithdraw:
		r.Reason = plan.ReasonPending
	case act.Verb == plan.VerbRelease && act.Reason == plan.ReasonRemoved:
		r.Reason = plan.ReasonAdopted
	case act.Verb == plan.VerbDrop && r.Message == "":
		r.Message = "it is no longer managed"
	}
	return r
}
