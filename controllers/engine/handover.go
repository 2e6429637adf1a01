package engine

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// inherited plans to hand over what other owners want, and returns the entries
// that nobody does. Those of which that can't be known yet wait.
func inherited(in *Input, leaving []appsv1.InventoryEntry, p *Plan) []appsv1.InventoryEntry {
	if in.Policies.Heir == nil {
		return leaving
	}
	var nobodys []appsv1.InventoryEntry
	waits := map[string]bool{}
	for _, e := range leaving {
		heir, wait := in.Policies.Heir(e.ID)
		switch {
		case wait != "":
			a := Action{Verb: Wait, Reason: Claimable, Entry: e}
			if !waits[wait] {
				waits[wait] = true
				a.Message = wait // once for all that wait for the same
			}
			p.Waits = append(p.Waits, a)
		case heir == nil || e.State == appsv1.EntryShared:
			nobodys = append(nobodys, e)
		default:
			planHandOver(in, e, heir, p)
		}
	}
	return nobodys
}

func planHandOver(in *Input, e appsv1.InventoryEntry, heir *OwnerKey, p *Plan) {
	ref, err := stacks.ParseID(e.ID)
	if err != nil {
		p.Removals = append(p.Removals, Action{Verb: Drop, Reason: Invalid, Entry: e, Message: err.Error()})
		return
	}
	a := Action{Verb: HandOver, Reason: Moved, Entry: e, Heir: heir}
	if held := in.HeldBack(e.ID); held != "" {
		a.Verb, a.Reason, a.Message, a.Err = Wait, Held, held, errHeld
		p.Waits = append(p.Waits, a)
		return
	}
	if l, ok := in.Live(ref); ok {
		if a.Live = &l; l.Mark.Owner != in.Owner.String() {
			a.Verb, a.Reason = Drop, Owned
		}
	}
	p.Removals = append(p.Removals, a)
}

// handOver puts the mark of the heir on an object in place of the owner's. The
// heir's next apply takes it as its own.
func (a *actor) handOver(ctx context.Context, act *Action, ref stacks.Ref, r dynamic.ResourceInterface) result {
	md := map[string]any{"annotations": map[string]any{
		live.MarkAnnotation: live.Mark{Owner: act.Heir.String(), ID: act.Entry.ID}.String()}}
	if act.Entry.UID != "" {
		md["uid"] = act.Entry.UID
	}
	u, err := a.merge(ctx, WriteRelease, r, ref.Name, map[string]any{"metadata": md})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		a.target.Index.ObserveGone(ref, act.Entry.UID)
		return result{drop: true}
	case err != nil:
		return a.failed(act, err)
	}
	if _, err := a.target.Index.Observe(u); err != nil {
		return a.failed(act, err)
	}
	return result{drop: true, change: &Change{Verb: HandOver, Reason: Moved, Ref: ref, Note: "to " + act.Heir.People()}}
}
