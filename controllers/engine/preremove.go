package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

var jobs = batchv1.SchemeGroupVersion.WithKind("Job").GroupKind()

// PreRemoveError says that a Job failed which has to succeed before anything is removed.
type PreRemoveError struct {
	Ref stacks.Ref
	// Why it failed, as far as it says so.
	Why string
}

func (e *PreRemoveError) Error() string {
	return fmt.Sprintf("%s, which runs before anything is removed, has failed (%s): see its log; delete the Job to go on without it", e.Ref, e.Why)
}

// planRuns plans to run the Jobs that come before the removal of entries: waves
// backwards, in a wave by place, each done before the next. It reports whether
// the removal has to wait.
func planRuns(in *Input, entries []appsv1.InventoryEntry, p *Plan) (waits bool) {
	runs := toRun(in, entries)
	slices.SortFunc(runs, func(a, b appsv1.InventoryEntry) int {
		return cmp.Or(cmp.Compare(b.Wave, a.Wave), cmp.Compare(a.PreRemove, b.PreRemove), cmp.Compare(a.ID, b.ID))
	})
	for i, e := range runs {
		if i > 0 && waits && (runs[i-1].Wave != e.Wave || runs[i-1].PreRemove != e.PreRemove) {
			break
		}
		ref, err := stacks.ParseID(e.ID)
		if err != nil {
			continue // planRemovals drops it
		}
		waits = true
		if a := decideRun(in, e, ref); a.Verb == Wait {
			p.Waits = append(p.Waits, a)
		} else {
			p.Removals = append(p.Removals, a)
		}
	}
	return waits
}

// toRun are the Jobs among entries that have to run: those of components that go
// as a whole, and not alone. All of them when everything goes.
func toRun(in *Input, entries []appsv1.InventoryEntry) (runs []appsv1.InventoryEntry) {
	stays, prepares := map[string]bool{}, map[string]bool{}
	for i := range in.Components {
		stays[in.Components[i].Name] = len(in.Components[i].Items) > 0
	}
	for _, e := range entries {
		prepares[e.Component] = prepares[e.Component] || e.PreRemove > 0
		if e.PreRemove > 0 && !stays[e.Component] && e.State != appsv1.EntryDone && e.State != appsv1.EntryIntended {
			runs = append(runs, e)
		}
	}
	goes := func(e appsv1.InventoryEntry) bool { return !stays[e.Component] && !prepares[e.Component] }
	if in.Components != nil && !slices.ContainsFunc(entries, goes) {
		return nil
	}
	return runs
}

// decideRun says what a Job needs that runs before a removal.
func decideRun(in *Input, e appsv1.InventoryEntry, ref stacks.Ref) Action {
	a := Action{Verb: Wait, Reason: PreRemove, Entry: e}
	if held := in.HeldBack(e.ID); held != "" {
		a.Reason, a.Message, a.Err = Held, held, errHeld
		return a
	}
	if err := in.Unsynced(ref.GroupKind()); err != nil {
		a.Reason, a.Message = Unsynced, ref.String()+": "+err.Error()
		return a
	}
	if in.Succeeded(ref, e.UID) {
		a.Verb = Record // whatever became of it since
		return a
	}
	l, ok := in.Live(ref)
	if !ok {
		a.Verb, a.Reason = Run, Unsure
		return a
	}
	a.Live = &l
	switch {
	case l.Mark.Owner != in.Owner.String(), l.UID != e.UID:
		a.Verb, a.Message = Record, "it is no longer ours: it did not run"
	case l.Succeeded:
		a.Verb = Record
	case l.Deleting:
		a.Reason, a.Message = Leaving, leavingObject(&l).Error()
	case l.Ready == live.Failed:
		a.Err = &PreRemoveError{Ref: ref, Why: l.Message}
		a.Message = a.Err.Error()
	case l.Suspended && l.Protected:
		a.Reason, a.Message = Protected, (&ProtectedError{Ref: ref}).Error()
	case l.Suspended:
		a.Verb = Run
	default:
		a.Message = fmt.Sprintf("%s runs before anything is removed, and is not done", ref)
	}
	return a
}

// ranBefore records that a Job is not to be waited for any more: it succeeded,
// or will never run.
func ranBefore(act *Action, ref stacks.Ref) result {
	e := act.Entry
	e.State = appsv1.EntryDone
	change := &Change{Verb: Record, Reason: PreRemove, Ref: ref, Note: "it succeeded"}
	if act.Message != "" {
		change.Verb, change.Note = Skip, act.Message
	}
	return result{entry: &e, change: change}
}

// run lets a suspended Job go.
func (a *actor) run(ctx context.Context, act *Action, ref stacks.Ref, r dynamic.ResourceInterface) result {
	if act.Live == nil {
		return a.seek(ctx, act, ref, r)
	}
	u, err := a.merge(ctx, WriteUpdate, r, ref.Name, map[string]any{"metadata": map[string]any{"uid": act.Live.UID}, "spec": map[string]any{"suspend": false}})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		a.target.Index.ObserveGone(ref, act.Live.UID)
		return result{again: true}
	case err != nil:
		return a.failed(act, err)
	}
	if _, err := a.target.Index.Observe(u); err != nil {
		return a.failed(act, err)
	}
	return result{change: &Change{Verb: Run, Reason: PreRemove, Ref: ref, Note: "it runs before anything is removed"}}
}

// seek reads a Job that the index does not know. One that is gone can't run:
// whoever deleted it wanted it so.
func (a *actor) seek(ctx context.Context, act *Action, ref stacks.Ref, r dynamic.ResourceInterface) result {
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return a.failed(act, err)
	}
	if err == nil {
		mark, merr := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
		if merr == nil && mark == (live.Mark{Owner: a.owner.Key().String(), ID: act.Entry.ID}) && u.GetUID() == act.Entry.UID {
			if _, err := a.target.Index.Observe(u); err != nil {
				return a.failed(act, err)
			}
			return result{again: true}
		}
		act.Message = "it is no longer ours: it did not run"
		return ranBefore(act, ref)
	}
	act.Message = "it is gone: it did not run"
	return ranBefore(act, ref)
}
