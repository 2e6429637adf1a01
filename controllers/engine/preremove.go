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

var jobKind = batchv1.SchemeGroupVersion.WithKind("Job").GroupKind()

// PreRemoveError is returned for a failed Job that has to succeed before anything is removed.
type PreRemoveError struct {
	Ref stacks.Ref
	// Message is the failure message of the Job, if it has one.
	Message string
}

func (e *PreRemoveError) Error() string {
	return fmt.Sprintf("%s, which runs before anything is removed, has failed (%s): see its log; delete the Job to continue without it", e.Ref, e.Message)
}

// planPreRemoveJobs plans to run the Jobs that have to run before the removal of entries: in
// reverse order of waves, and by position in a wave, each completed before the next starts. It
// returns true if the removal has to wait.
func planPreRemoveJobs(in *Snapshot, entries []appsv1.InventoryEntry, p *Plan) (pending bool) {
	jobs := preRemoveJobs(in, entries)
	slices.SortFunc(jobs, func(a, b appsv1.InventoryEntry) int {
		return cmp.Or(cmp.Compare(b.Wave, a.Wave), cmp.Compare(a.PreRemove, b.PreRemove), cmp.Compare(a.ID, b.ID))
	})
	for i, e := range jobs {
		if i > 0 && pending && (jobs[i-1].Wave != e.Wave || jobs[i-1].PreRemove != e.PreRemove) {
			break
		}
		ref, err := stacks.ParseID(e.ID)
		if err != nil {
			continue // planRemovals drops the entry
		}
		pending = true
		if a := decidePreRemoveJob(in, e, ref); a.Verb == VerbWait {
			p.Waits = append(p.Waits, a)
		} else {
			p.Removals = append(p.Removals, a)
		}
	}
	return pending
}

// preRemoveJobs returns the Jobs among entries that have to run: those of components that are
// removed completely. When everything is removed, all of them run. When the stack stays, they run
// only if a component without such Jobs is removed completely, too.
func preRemoveJobs(in *Snapshot, entries []appsv1.InventoryEntry) (jobs []appsv1.InventoryEntry) {
	remaining, hasJobs := map[string]bool{}, map[string]bool{}
	for i := range in.Components {
		remaining[in.Components[i].Name] = len(in.Components[i].Items) > 0
	}
	for _, e := range entries {
		hasJobs[e.Component] = hasJobs[e.Component] || e.PreRemove > 0
		if e.PreRemove > 0 && !remaining[e.Component] && e.State != appsv1.EntryDone && e.State != appsv1.EntryIntended {
			jobs = append(jobs, e)
		}
	}
	removedWithoutJobs := func(e appsv1.InventoryEntry) bool { return !remaining[e.Component] && !hasJobs[e.Component] }
	if in.Components != nil && !slices.ContainsFunc(entries, removedWithoutJobs) {
		return nil
	}
	return jobs
}

// decidePreRemoveJob returns the action for a Job that has to run before a removal.
func decidePreRemoveJob(in *Snapshot, e appsv1.InventoryEntry, ref stacks.Ref) Action {
	a := Action{Verb: VerbWait, Reason: ReasonPreRemove, Entry: e}
	if reason := in.backoffMessage(e.ID, ""); reason != "" {
		a.Reason, a.Message, a.Err = ReasonBackingOff, reason, errBackingOff
		return a
	}
	if err := in.SyncErrors[ref.GroupKind()]; err != nil {
		a.Reason, a.Message = ReasonIndexNotSynced, ref.String()+": "+err.Error()
		return a
	}
	if in.Succeeded[e.ID] {
		a.Verb = VerbRecord // even if it no longer exists
		return a
	}
	l := in.Objects[e.ID]
	if l == nil {
		a.Verb, a.Reason = VerbRun, ReasonUnconfirmed
		return a
	}
	a.Live = l
	switch {
	case l.Mark.Owner != in.Owner.String(), l.UID != e.UID:
		a.Verb, a.Message = VerbRecord, "it is no longer managed: it did not run"
	case l.Succeeded:
		a.Verb = VerbRecord
	case l.Deleting:
		a.Reason, a.Message = ReasonBeingDeleted, beingDeletedObject(l).Error()
	case l.Readiness == live.Failed:
		a.Err = &PreRemoveError{Ref: ref, Message: l.Message}
		a.Message = a.Err.Error()
	case l.Suspended && l.Protected:
		a.Reason, a.Message = ReasonProtected, (&ProtectedError{Ref: ref}).Error()
	case l.Suspended:
		a.Verb = VerbRun
	default:
		a.Message = fmt.Sprintf("%s runs before anything is removed, and is not done", ref)
	}
	return a
}

// recordPreRemoveJob records that the removal no longer waits for a Job: it succeeded, or will
// never run.
func recordPreRemoveJob(act *Action, ref stacks.Ref) actionResult {
	e := act.Entry
	e.State = appsv1.EntryDone
	change := &Change{Verb: VerbRecord, Reason: ReasonPreRemove, Ref: ref, Message: "it succeeded"}
	if act.Message != "" {
		change.Verb, change.Message = VerbSkip, act.Message
	}
	return actionResult{entry: &e, change: change}
}

// runPreRemoveJob resumes a suspended Job.
func (a *executor) runPreRemoveJob(ctx context.Context, act *Action, ref stacks.Ref, r dynamic.ResourceInterface) actionResult {
	if act.Live == nil {
		return a.findPreRemoveJob(ctx, act, ref, r)
	}
	u, err := a.mergePatch(ctx, WriteUpdate, r, ref.Name, map[string]any{"metadata": map[string]any{"uid": act.Live.UID}, "spec": map[string]any{"suspend": false}})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		a.target.Index.ObserveGone(ref, act.Live.UID)
		return actionResult{replan: true}
	case err != nil:
		return a.errorResult(act, err)
	}
	if _, err := a.target.Index.Observe(u); err != nil {
		return a.errorResult(act, err)
	}
	return actionResult{change: &Change{Verb: VerbRun, Reason: ReasonPreRemove, Ref: ref, Message: "it runs before anything is removed"}}
}

// findPreRemoveJob reads a Job that the index does not know. The removal continues without a Job
// that is gone: a user may delete it to skip it.
func (a *executor) findPreRemoveJob(ctx context.Context, act *Action, ref stacks.Ref, r dynamic.ResourceInterface) actionResult {
	u, err := r.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return a.errorResult(act, err)
	}
	if err == nil {
		mark, merr := live.ParseMark(u.GetAnnotations()[live.MarkAnnotation])
		if merr == nil && mark == (live.Mark{Owner: a.owner.Key().String(), ID: act.Entry.ID}) && u.GetUID() == act.Entry.UID {
			if _, err := a.target.Index.Observe(u); err != nil {
				return a.errorResult(act, err)
			}
			return actionResult{replan: true}
		}
		act.Message = "it is no longer managed: it did not run"
		return recordPreRemoveJob(act, ref)
	}
	act.Message = "it is gone: it did not run"
	return recordPreRemoveJob(act, ref)
}
