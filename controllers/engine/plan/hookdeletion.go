package plan

import (
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// hookSucceededPolicy is Helm's hook delete policy for hooks that are deleted after they succeeded.
const hookSucceededPolicy = "hook-succeeded"

// planHookDeletions plans to delete the completed hooks of a ready component whose policy is
// hookSucceededPolicy. Their completion is persisted before the delete, so that a crash in between
// runs no hook twice.
func planHookDeletions(in *Snapshot, c *Component, p *Plan) {
	for i := range c.Items {
		it := &c.Items[i]
		e, _ := in.Inventory.Get(it.ID)
		if !deletedOnSuccess(it) || in.Policies.ProtectReason(it.Ref) != "" || e.State != appsv1.EntryDone ||
			e.Hash != it.ContentHash || in.backoffMessage(it.ID, it.ContentHash) != "" {
			continue
		}
		l := in.Objects[it.ID]
		if l == nil || l.UID != e.UID || l.Mark.Owner != in.Owner.String() || l.Adopted || l.Protected ||
			in.isDeleting(it.ID, l) {
			continue
		}
		p.Intents = append(p.Intents, e)
		p.Actions = append(p.Actions, Action{Verb: VerbDelete, Reason: ReasonFinished, Item: it, Entry: e, Live: l})
	}
}

// deletedOnSuccess is true for a Job or a Pod that is a hook with hookSucceededPolicy. Hooks of
// other kinds are kept, because later hooks use them.
func deletedOnSuccess(it *Item) bool {
	return isRunnable(it) && it.RunsOnce && slices.Contains(it.Hook.DeletePolicies, hookSucceededPolicy) &&
		it.Hook.Phase != stacks.HookPreRemove
}

// isRunnable is true for a Job or a Pod that is a hook.
func isRunnable(it *Item) bool {
	return it.Hook != nil && (it.GroupKind() == jobKind || it.GroupKind() == podKind)
}
