package plan

import (
	"slices"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// hookSucceededPolicy is Helm's hook delete policy for hooks that are deleted after they succeeded.
const hookSucceededPolicy = "hook-succeeded"

// openPhases are the phases of a component with a hook of which it is not recorded that it is done.
type openPhases map[stacks.HookPhase]bool

func openPhasesOf(in *Snapshot, items []*Item) openPhases {
	var out openPhases
	for _, it := range items {
		if it.Hook == nil || !it.RunsOnce || it.Settled || it.Serves != nil { // definitions may be shared
			continue
		}
		e, _ := in.Inventory.Get(it.ID)
		isDone := e.State == appsv1.EntryDone && e.Hash == it.ContentHash
		isPast := it.PostStep > 0 && e.Hash == it.PostHash // it was applied again after that
		if isDone || isPast {
			continue
		}
		if out == nil {
			out = openPhases{}
		}
		out[it.Hook.Phase] = true
	}
	return out
}

// releases is true for a hook of two phases whose first phase is over.
func (p openPhases) releases(it *Item) bool { return it.PostStep > 0 && !p[it.Hook.Phase] }

// visits returns the items in the order in which they are planned: a hook of two phases twice.
func (c *Component) visits() []*Item {
	out := make([]*Item, 0, len(c.Items))
	var again []*Item
	for i := range c.Items {
		it := &c.Items[i]
		out = append(out, it)
		if it.PostStep > 0 {
			post, hook := *it, *it.Hook
			hook.Phase = stacks.HookPost
			post.Hook, post.Step, post.ContentHash, post.PostStep = &hook, it.PostStep, it.PostHash, 0
			again = append(again, &post)
		}
	}
	if len(again) == 0 {
		return out
	}
	out = slices.Concat(again, out) // before the other hooks of their step
	slices.SortStableFunc(out, func(a, b *Item) int { return a.Step - b.Step })
	return out
}

// planSettled plans for a hook that is not applied now: it belongs to its component nevertheless.
func planSettled(in *Snapshot, it *Item, p *Plan) {
	e, known := in.Inventory.Get(it.ID)
	if !known || e.Component == it.Component || in.isDesired(e.Component) || p.acts(it.ID) {
		return
	}
	keepHooksFromRunning(in, e.Component, p)
	p.Actions = append(p.Actions, Action{Verb: VerbRecord, Reason: ReasonMoved, Item: it, Entry: e})
}

// planRun plans what has to be persisted before a run of a hook, and records if one is not done.
func planRun(a *Action, st *ComponentState, p *Plan) {
	if e, needed := createIntent(a); needed {
		p.Intents, a.Entry = append(p.Intents, e), e
	}
	if a.Item.Hook != nil && a.Item.RunsOnce && a.Reason != ReasonFinished && a.Reason != ReasonShared {
		st.Released = false
	}
}

// createIntent returns the entry to persist before a Job or a Pod is created for a run: an object
// that exists then is that of the run. There is none if it is persisted already.
func createIntent(a *Action) (appsv1.InventoryEntry, bool) {
	e := a.Entry
	if a.Verb != VerbCreate || !a.Item.Runs() || Uncreated(&e) && e.Hash == a.Item.ContentHash {
		return e, false
	}
	e.State, e.UID, e.Hash, e.Baseline, e.RetainedAt = appsv1.EntryIntended, "", a.Item.ContentHash, "", nil
	return e, true
}

// planHookDeletions plans to delete the hooks of a phase that is over: those with the policy
// hookSucceededPolicy, and Jobs whose time to live has passed. Their completion is persisted before
// the delete, so that a crash in between runs no hook twice.
func planHookDeletions(in *Snapshot, items []*Item, open openPhases, p *Plan) {
	for _, it := range items {
		e, _ := in.Inventory.Get(it.ID)
		if it.Hook == nil || !it.RunsOnce || e.State != appsv1.EntryDone || e.Hash != it.ContentHash && !it.Settled ||
			open[it.Hook.Phase] || in.Policies.ProtectReason(it.Ref) != "" ||
			in.backoffMessage(it.ID, it.ContentHash) != "" {
			continue
		}
		l := in.Objects[it.ID]
		if l == nil || l.UID != e.UID || l.Mark.Owner != in.Owner.String() || l.Adopted || l.Protected ||
			in.isDeleting(it.ID, l) || p.acts(it.ID) {
			continue
		}
		if !slices.Contains(it.Hook.DeletePolicies, hookSucceededPolicy) {
			if it.Hook.TTLSeconds == nil {
				continue
			}
			left := time.Duration(*it.Hook.TTLSeconds)*time.Second - in.DoneFor[it.ID]
			if left > 0 {
				p.deleteAfter(left)
				continue
			}
		}
		p.Intents = append(p.Intents, e)
		p.Actions = append(p.Actions, Action{Verb: VerbDelete, Reason: ReasonFinished, Item: it, Entry: e, Live: l})
	}
}

// acts reports whether the plan has an action on an object.
func (p *Plan) acts(id string) bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Entry.ID == id })
}

// deleteAfter makes sure that another plan is made when a hook has to be deleted.
func (p *Plan) deleteAfter(left time.Duration) {
	if p.DeleteAfter == 0 || left < p.DeleteAfter {
		p.DeleteAfter = left
	}
}

// Runs is true for a Job or a Pod that is a hook of an install, an upgrade, a removal or a test.
func (it *Item) Runs() bool { return it.RunsOnce && isRunnable(it) }

// isRunnable is true for a Job or a Pod that is a hook.
func isRunnable(it *Item) bool {
	return it.Hook != nil && (it.GroupKind() == jobKind || it.GroupKind() == podKind)
}
