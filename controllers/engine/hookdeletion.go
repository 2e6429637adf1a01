package engine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// hookSucceeded is Helm's policy for hooks that are deleted once they succeeded.
const hookSucceeded = "hook-succeeded"

// planExpiry plans to delete the hooks of a component that is ready which are
// done and not to be kept. That they are done is recorded first: a crash in
// between runs none twice.
func planExpiry(in *Input, c *Component, p *Plan) {
	for i := range c.Items {
		it := &c.Items[i]
		e, _ := in.Inventory.Get(it.ID)
		if !expires(it) || in.Policies.protects(it.Ref) != "" || e.State != appsv1.EntryDone || e.Hash != it.Want || in.Held(it) != "" {
			continue
		}
		l, ok := in.Live(it.Ref)
		if !ok || l.UID != e.UID || l.Mark.Owner != in.Owner.String() || l.Adopted || l.Protected || l.Deleting || in.Deleted(it.ID) == l.UID {
			continue
		}
		p.Intents = append(p.Intents, e)
		p.Actions = append(p.Actions, Action{Verb: Delete, Reason: Finished, Item: it, Entry: e, Live: &l})
	}
}

// expires is true for a Job or a Pod that is a hook with that policy. What else
// is a hook is used by the hooks to come.
func expires(it *Item) bool {
	runs := it.GroupKind() == jobs || it.GroupKind() == corev1.SchemeGroupVersion.WithKind("Pod").GroupKind()
	return runs && it.RunsOnce && it.Hook != nil && slices.Contains(it.Hook.DeletePolicies, hookSucceeded) && it.Hook.Phase != stacks.HookPreRemove
}
