package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// retention is what becomes of the objects that left components with Retain.
type retention struct {
	// plan has the actions and waits for them.
	plan Plan
	// others are the entries that are removed as usual.
	others []appsv1.InventoryEntry
	// stopping is the Job that has to be gone before another one starts, by component.
	stopping map[string]string
}

// retainedKind is a kind of a component, of which one object is desired and the last ones stay.
type retainedKind struct {
	component string
	kind      schema.GroupKind
}

// planRetained decides about the entries that left the stack. In a component with Retain, other
// content is another object, and the former ones stay. They are not corrected, not created again
// when they are missing, and not part of the readiness. A Job that has not ended is deleted at
// once.
func planRetained(in *Snapshot, undesired []appsv1.InventoryEntry) retention {
	limits := map[string]int32{}
	for i := range in.Components {
		if c := &in.Components[i]; c.Retain != nil {
			limits[c.Name] = *c.Retain
		}
	}
	r := retention{others: undesired, stopping: map[string]string{}}
	if len(limits) == 0 {
		return r
	}
	r.others = nil
	kept := map[retainedKind][]appsv1.InventoryEntry{}
	for _, e := range undesired {
		ref, err := parseEntryID(e.ID)
		if _, retains := limits[e.Component]; err != nil || !retains || !isRetainable(in, &e, ref) {
			r.others = append(r.others, e)
		} else if r.stays(in, e, ref) {
			kind := retainedKind{e.Component, ref.GroupKind()}
			kept[kind] = append(kept[kind], e)
		}
	}
	var excess []appsv1.InventoryEntry
	for kind, entries := range kept {
		last := int(limits[kind.component])
		left := recordRetained(entries, in.Now)
		for i, e := range entries {
			if i >= last {
				excess = append(excess, e)
			} else if left[e.ID] {
				r.plan.Intents = append(r.plan.Intents, e)
			}
		}
	}
	slices.SortFunc(r.plan.Intents, byID)
	slices.SortFunc(excess, byID)
	r.planExcess(in, excess)
	return r
}

// isRetainable is false for what does not depend on the content of the component: shared
// namespaces, generated values, hooks of a removal, and objects of which it is unknown if they
// exist.
func isRetainable(in *Snapshot, e *appsv1.InventoryEntry, ref stacks.Ref) bool {
	isValues := ref.Group == "" && ref.Kind == "Secret" && strings.HasPrefix(ref.Name, generated.SecretNamePrefix)
	return e.State != appsv1.EntryShared && !isValues && !in.isRemovalHook(e.ID) &&
		(in.Objects[e.ID] != nil || !Uncreated(e) || ref.GroupKind() == jobKind)
}

// stays returns true for an entry whose object is retained, and plans what happens to the others.
func (r *retention) stays(in *Snapshot, e appsv1.InventoryEntry, ref stacks.Ref) bool {
	l, isJob := in.Objects[e.ID], ref.GroupKind() == jobKind
	unknown := in.Unsettled[e.ID] != "" || in.SyncErrors[ref.GroupKind()] != nil
	switch to := in.Handovers[e.ID].To; {
	case to != nil && in.Unsettled[e.ID] == "":
		planHandover(in, e, to, &r.plan)
		return false
	case unknown && (!isJob || e.RetainedAt != nil):
		return true // decided when it is known
	case unknown, l == nil && Uncreated(&e):
		r.stop(in, e, ref)
		return false
	case l == nil:
		r.plan.addRemoval(Action{Verb: VerbDrop, Reason: ReasonMissing, Entry: e})
		return false
	case l.Mark.Owner != in.Owner.String(), e.State != appsv1.EntryIntended && e.UID != "" && l.UID != e.UID:
		r.plan.addRemoval(Action{Verb: VerbDrop, Reason: ReasonOwnedByOther, Entry: e, Live: l})
		return false
	case isJob && e.State != appsv1.EntryDone && !l.Finished:
		r.stop(in, e, ref)
		return false
	}
	return true
}

// stop plans to delete a Job that has not ended, whoever may desire it: two of a component must not
// run at the same time.
func (r *retention) stop(in *Snapshot, e appsv1.InventoryEntry, ref stacks.Ref) {
	a := decideRemoval(in, e, ref)
	if a.Verb == VerbDelete && !in.Policies.Prune {
		a.Verb, a.Message = VerbRelease, notPruned
	}
	if a.Verb == VerbDelete && a.Reason == ReasonRemoved {
		a.Reason = ReasonReplaced
	}
	if a.Verb == VerbDelete || a.Verb == VerbWait {
		r.stopping[e.Component] = ref.String()
	}
	r.plan.addRemoval(a)
}

// planExcess plans to remove the objects that left before the last ones. They need no approval, and
// wait for nothing but the plans of the owners that may desire them.
func (r *retention) planExcess(in *Snapshot, excess []appsv1.InventoryEntry) {
	excess = planHandovers(in, excess, &r.plan)
	if !in.Policies.Prune {
		planReleases(in, excess, notPruned, &r.plan)
		return
	}
	for _, e := range excess {
		ref, err := parseEntryID(e.ID)
		if err != nil {
			continue // planRetained leaves it to the others
		}
		r.plan.addRemoval(decideRemoval(in, e, ref))
	}
}

// recordRetained sorts the retained entries of one kind, the last one first, and sets the time of
// those that left now, whose ids it returns. They are later than the others on every clock.
func recordRetained(entries []appsv1.InventoryEntry, now time.Time) (left map[string]bool) {
	left = map[string]bool{}
	now = now.UTC().Truncate(time.Microsecond)
	for _, e := range entries {
		if e.RetainedAt != nil && !now.After(e.RetainedAt.Time) {
			now = e.RetainedAt.UTC().Add(time.Microsecond)
		}
	}
	for i := range entries {
		if e := &entries[i]; e.RetainedAt == nil {
			e.RetainedAt, left[e.ID] = new(metav1.NewMicroTime(now)), true
		}
	}
	slices.SortFunc(entries, func(a, b appsv1.InventoryEntry) int {
		return cmp.Or(b.RetainedAt.Compare(a.RetainedAt.Time), byID(a, b))
	})
	return left
}

// stopJob turns the start of a Job into a wait, if another one has to be gone first.
func (on *blockers) stopJob(a *Action) {
	if on.job == "" || a.Verb != VerbCreate && a.Verb != VerbUpdate || a.Item.GroupKind() != jobKind {
		return
	}
	*a = Action{Verb: VerbWait, Reason: ReasonBlocked, Item: a.Item, Entry: a.Entry, Live: a.Live,
		Message: fmt.Sprintf("%s starts when %s, which left the stack before it ended, is deleted", a.Item.Ref, on.job)}
}
