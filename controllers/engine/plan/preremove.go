package plan

import (
	"cmp"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Kinds of objects that run and end.
var (
	jobKind = batchv1.SchemeGroupVersion.WithKind("Job").GroupKind()
	podKind = corev1.SchemeGroupVersion.WithKind("Pod").GroupKind()
)

// planPreRemoveJobs plans to run the Jobs that have to run before the removal of entries: in
// reverse order of waves, and by position in a wave, each completed before the next starts. It
// returns true if the removal has to wait.
func planPreRemoveJobs(in *Snapshot, entries []appsv1.InventoryEntry, p *Plan) (pending bool) {
	jobs := preRemoveJobs(in, entries)
	slices.SortFunc(jobs, func(a, b appsv1.InventoryEntry) int {
		return cmp.Or(cmp.Compare(b.Wave, a.Wave), cmp.Compare(a.PreRemove, b.PreRemove), byID(a, b))
	})
	for i, e := range jobs {
		if i > 0 && pending && (jobs[i-1].Wave != e.Wave || jobs[i-1].PreRemove != e.PreRemove) {
			break
		}
		ref, err := parseEntryID(e.ID)
		if err != nil {
			continue // planRemovals drops the entry
		}
		pending = true
		p.addRemoval(decidePreRemoveJob(in, e, ref))
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
		if e.PreRemove > 0 && !remaining[e.Component] && e.State != appsv1.EntryDone &&
			e.State != appsv1.EntryIntended {
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
	if in.waitsForRetry(&a, VerbWait) || in.waitsForIndex(&a, ref) {
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
		a.Reason, a.Message = ReasonBeingDeleted, NewBeingDeletedError(l).Error()
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
