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
	"github.com/ksctl/gitops/stacks"
)

// View is an owner whose inventory is looked at by somebody else than its own
// controller: nothing of it is changed.
type View struct {
	Of      OwnerKey
	Entries *Inventory
	Policy  Policies
}

var _ Owner = (*View)(nil)

var errView = errors.New("an inventory that is only looked at is not acted on")

// Key implements Owner.
func (v *View) Key() OwnerKey { return v.Of }

// Inventory implements Owner.
func (v *View) Inventory() *Inventory { return v.Entries }

// Policies implements Owner.
func (v *View) Policies() Policies { return v.Policy }

// Manifest implements Owner.
func (v *View) Manifest(context.Context, *Item) (json.RawMessage, error) { return nil, errView }

// Persist implements Owner.
func (v *View) Persist(context.Context) error { return errView }

// Remark is what there is to say of one object that is asked to go.
type Remark struct {
	Entry  appsv1.InventoryEntry
	Ref    stacks.Ref
	Reason Reason
	// Message for people; empty when it only waits for its turn.
	Message string
}

// Remarks beside those of actions.
const (
	// Finalizing is an object that a controller has to let go.
	Finalizing Reason = "Finalizers"
	// Adopted is an object that was there before us.
	Adopted Reason = "Adopted"
	// Pending is an object whose turn has not come.
	Pending Reason = "Pending"
)

// Rehearsal is what a removal would do as things stand.
type Rehearsal struct {
	// Steps in their order: what is in one goes side by side.
	Steps [][]Remark
	// Kept are left, Blockers would hold the removal.
	Kept, Blockers []Remark
	// Unsynced is set when the index can't tell of all objects yet.
	Unsynced error
}

// Watch has the index know the kinds of an inventory for somebody who only looks at
// it; who is told of changes of what the index knows.
func (e *Engine) Watch(ctx context.Context, t *Target, who OwnerKey, v *View) {
	e.use(ctx, t, &View{Of: who, Entries: v.Entries}, nil, nil)
}

// Observe has the index know the kinds that an owner has objects of.
func (e *Engine) Observe(ctx context.Context, t *Target, o Owner) { e.use(ctx, t, o, nil, nil) }

// Holds is false where there is certainly no object of an owner's that would go with an
// entry of its inventory: it was never made, is gone or going, or somebody else's. The
// index has to know its kind, which Observe sees to.
func (e *Engine) Holds(ctx context.Context, t *Target, o Owner, id string) bool {
	entry, listed := o.Inventory().Get(id)
	ref, err := stacks.ParseID(id)
	if !listed || err != nil {
		return false
	}
	var unserved *NotServedError
	if _, err := t.Discovery.Resolve(ctx, ref.Group, entry.Version, ref.Kind); errors.As(err, &unserved) {
		return false
	}
	if t.Index.Synced(ref.GroupKind()) != nil {
		return true // it may be
	}
	l, there := t.Index.Get(ref)
	return there && !l.Deleting && l.Mark.Owner == o.Key().String()
}

// Rehearse says what the removal of what a person asked to go would do. It changes
// nothing; it looks at definitions and namespaces with the client's rights.
func (e *Engine) Rehearse(ctx context.Context, t *Target, c *Client, v *View) (*Rehearsal, error) {
	r := &Rehearsal{}
	if r.Unsynced = unsynced(ctx, t, v); r.Unsynced != nil {
		return r, nil //nolint:nilerr // it is said in the rehearsal
	}
	a := &actor{engine: e, target: t, client: c, owner: v, stays: staying(v), rehearses: true}
	in := e.input(t, v)
	yes, _ := asked(&v.Policy, v.Entries.Entries())
	for _, e := range toRun(in, yes) {
		ref, err := stacks.ParseID(e.ID)
		if err == nil {
			r.Blockers = append(r.Blockers, Remark{Entry: e, Ref: ref, Reason: PreRemove, Message: ref.String() + " runs before anything is removed"})
		}
	}
	slots, _ := ordered(yes)
	var last *slot
	for i := range slots {
		s := &slots[i]
		act := decideRemoval(in, s.entry, s.ref)
		if err := a.foresee(ctx, &act, s.ref); err != nil {
			return nil, err
		}
		remark := remarkOn(&act, s.ref)
		switch act.Verb {
		case Release, Drop:
			r.Kept = append(r.Kept, remark)
			continue
		case Wait, Refuse:
			r.Blockers = append(r.Blockers, remark)
		}
		if last == nil || !s.beside(last) {
			r.Steps = append(r.Steps, nil)
		}
		last = s
		r.Steps[len(r.Steps)-1] = append(r.Steps[len(r.Steps)-1], remark)
	}
	return r, nil
}

// Foresee says what of an inventory would not go as things stand, because others have
// objects in it: namespaces would be kept, definitions would hold the removal. Of the
// rest the caller knows.
func (e *Engine) Foresee(ctx context.Context, t *Target, c *Client, o Owner) (kept, blockers []Remark, err error) {
	a := &actor{engine: e, target: t, client: c, owner: o, rehearses: true}
	for _, entry := range o.Inventory().Entries() {
		ref, err := stacks.ParseID(entry.ID)
		if err != nil {
			continue // it names nothing
		}
		act := Action{Verb: Delete, Reason: Removed, Entry: entry}
		if err := a.foresee(ctx, &act, ref); err != nil {
			return nil, nil, err
		}
		switch act.Verb {
		case Release:
			kept = append(kept, remarkOn(&act, ref))
		case Wait:
			blockers = append(blockers, remarkOn(&act, ref))
		}
	}
	return kept, blockers, nil
}

// foresee finds out what would keep an object that is planned to be deleted.
func (a *actor) foresee(ctx context.Context, act *Action, ref stacks.Ref) error {
	if act.Verb != Delete {
		return nil
	}
	if act.Live != nil && len(act.Live.Finalizers) > 0 {
		act.Verb, act.Reason = Wait, Finalizing
		act.Message = fmt.Sprintf("%s has finalizers %s: who set them must let it go", ref, strings.Join(act.Live.Finalizers, ", "))
		return nil
	}
	if a.client == nil {
		return nil
	}
	var leave string
	var err error
	var protected *ProtectedError
	if act.Entry.State == appsv1.EntryShared {
		leave, err = a.keepsShared(ctx, ref)
	} else {
		leave, err = a.spare(ctx, act, ref)
	}
	switch {
	case err != nil && fatal(err):
		return err
	case errors.As(err, &protected):
		act.Verb, act.Reason, act.Message = Wait, Protected, err.Error()
	case err != nil:
		act.Verb, act.Reason, act.Message = Wait, Owned, err.Error()
	case leave != "":
		act.Verb, act.Reason, act.Message = Release, Kept, leave
	}
	return nil
}

// keepsShared says why a shared namespace would stay.
func (a *actor) keepsShared(ctx context.Context, ref stacks.Ref) (string, error) {
	u, err := a.client.Resource(namespaces).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return a.keepNamespace(ctx, u)
}

// Standing says of each object that a person asked to go, and that is there yet, what
// holds it. It makes no request.
func (e *Engine) Standing(t *Target, v *View) []Remark {
	in := e.input(t, v)
	yes, _ := asked(&v.Policy, v.Entries.Entries())
	slots, _ := ordered(yes)
	out := make([]Remark, 0, len(slots))
	var runs Plan
	planRuns(in, yes, &runs)
	for i := range slots {
		act := decideRemoval(in, slots[i].entry, slots[i].ref)
		for _, w := range runs.Waits {
			if w.Entry.ID == act.Entry.ID {
				act = w
			}
		}
		out = append(out, remarkOn(&act, slots[i].ref))
	}
	return out
}

func remarkOn(act *Action, ref stacks.Ref) Remark {
	r := Remark{Entry: act.Entry, Ref: ref, Reason: act.Reason, Message: act.Message}
	switch {
	case act.Verb == Delete:
		r.Reason = Pending
	case act.Verb == Release && act.Reason == Removed:
		r.Reason = Adopted
	case act.Verb == Drop && r.Message == "":
		r.Message = "it is no longer ours"
	}
	return r
}
