package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// RemovalHooks are the hooks that a chart runs before and after the removal of its component.
type RemovalHooks struct {
	// Secret is the id of the Secret that they are kept in. Without it they do not run.
	Secret string
	// Pre and Post have the name and the wave of the component.
	Pre, Post Component
}

// preHooksDone marks the entry of the Secret of a component whose hooks before the removal have
// run: the value of InventoryEntry.PreRemove.
const preHooksDone = -1

// planRemovalHooks plans the hooks of the components that are removed: those before a removal, then
// the removal of everything else, then those after it, then what they needed. It returns the
// entries that may be removed now; none while hooks run. Of a component with hooks, nothing is
// removed until everything may be.
func planRemovalHooks(in *Snapshot, entries []appsv1.InventoryEntry, p *Plan) []appsv1.InventoryEntry {
	hooks, incomplete := removedHooks(in, entries)
	entries = slices.DeleteFunc(slices.Clone(entries), func(e appsv1.InventoryEntry) bool {
		return incomplete[e.Component]
	})
	for _, name := range slices.Sorted(maps.Keys(incomplete)) {
		// It does not wait for that: the rest may go to an install that waits for this one.
		p.Left = append(p.Left, Action{Verb: VerbWait, Reason: ReasonPreRemove,
			Entry: appsv1.InventoryEntry{ID: in.secretOf(name)}, Message: fmt.Sprintf("component %q stays until "+
				"all of its objects may be removed: its hooks run before that", name)})
	}
	if len(hooks) == 0 {
		return entries
	}
	if !planPreHooks(in, hooks, p) {
		return nil
	}
	reserved, secrets := map[string]bool{}, map[string]bool{}
	for i := range hooks {
		secrets[hooks[i].Secret] = true
		for _, c := range []*Component{&hooks[i].Pre, &hooks[i].Post} {
			for j := range c.Items {
				reserved[c.Items[j].ID] = true
			}
		}
	}
	var others, kept []appsv1.InventoryEntry
	for _, e := range entries {
		ref, err := parseEntryID(e.ID)
		switch {
		case secrets[e.ID]:
			kept = append(kept, e)
		case reserved[e.ID], err == nil && rank(ref, e) == rankNamespace: // hooks may be in the namespace
		default:
			others = append(others, e)
		}
	}
	if len(others) > 0 {
		return others
	}
	for _, h := range hooks {
		if !planHookPhase(in, h, &h.Post, "after", p) {
			return nil
		}
	}
	return kept // without its Secret, no hook runs again
}

// keepHooksFromRunning is called when an object of a component is handed over, or moves to another
// component: the component is not removed. The entry of the Secret with its hooks no longer belongs
// to the component then.
func keepHooksFromRunning(in *Snapshot, component string, p *Plan) {
	for i := range in.RemovalHooks {
		h := &in.RemovalHooks[i]
		if e, ok := in.Inventory.Get(h.Secret); ok && h.Pre.Name == component && e.Component == component {
			e.Component = ""
			p.Intents = append(p.Intents, e)
		}
	}
}

// isRemovalHook reports whether an entry is that of a hook that runs because of a removal.
func (s *Snapshot) isRemovalHook(id string) bool {
	is := func(it Item) bool { return it.ID == id }
	return slices.ContainsFunc(s.RemovalHooks, func(h RemovalHooks) bool {
		return slices.ContainsFunc(h.Pre.Items, is) || slices.ContainsFunc(h.Post.Items, is)
	})
}

// secretOf returns the id of the Secret with the hooks of a component.
func (s *Snapshot) secretOf(component string) string {
	i := slices.IndexFunc(s.RemovalHooks, func(h RemovalHooks) bool { return h.Pre.Name == component })
	return s.RemovalHooks[i].Secret
}

// removedHooks returns the hooks of the components of which every object is removed, in reverse
// order of waves; and the components with hooks of which only some are. No hook can run in a
// namespace that is being deleted.
func removedHooks(in *Snapshot, entries []appsv1.InventoryEntry) (hooks []*RemovalHooks, incomplete map[string]bool) {
	if len(in.RemovalHooks) == 0 || in.Policies.Orphan || in.Policies.TerminatingNamespace != "" {
		return nil, nil
	}
	removed, leaves, stays := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range entries {
		removed[entries[i].ID] = true
	}
	for id, e := range in.Inventory.All() {
		leaves[e.Component] = leaves[e.Component] || removed[id]
		stays[e.Component] = stays[e.Component] || !removed[id] && in.Policies.Released[id] == "" &&
			in.Handovers[id].Keep == ""
	}
	incomplete = map[string]bool{}
	for i := range in.RemovalHooks {
		h := &in.RemovalHooks[i]
		name := h.Pre.Name
		e, ok := in.Inventory.Get(h.Secret)
		switch {
		case !ok || e.Component != name || in.isDesired(name):
		case !stays[name]:
			hooks = append(hooks, h)
		case leaves[name]:
			incomplete[name] = true
		}
	}
	slices.SortFunc(hooks, func(a, b *RemovalHooks) int {
		return cmp.Or(cmp.Compare(b.Pre.Wave, a.Pre.Wave), cmp.Compare(a.Pre.Name, b.Pre.Name))
	})
	return hooks, incomplete
}

// isDesired reports whether a component has desired objects.
func (s *Snapshot) isDesired(component string) bool {
	return slices.ContainsFunc(s.Components, func(c Component) bool { return c.Name == component && len(c.Items) > 0 })
}

// planPreHooks plans the next step of the hooks before a removal, one component after the other. It
// returns true if all have run, which is recorded: nothing that the removal takes away runs them
// again.
func planPreHooks(in *Snapshot, hooks []*RemovalHooks, p *Plan) bool {
	for _, h := range hooks {
		secret, _ := in.Inventory.Get(h.Secret)
		if secret.PreRemove == preHooksDone {
			continue
		}
		if !planHookPhase(in, h, &h.Pre, "before", p) {
			return false
		}
		secret.PreRemove = preHooksDone
		p.Intents = append(p.Intents, secret)
	}
	return true
}

// planHookPhase plans the next step of the hooks of one phase of a component. It returns true if
// all have succeeded.
func planHookPhase(in *Snapshot, h *RemovalHooks, c *Component, when string, p *Plan) bool {
	if len(c.Items) == 0 {
		return true
	}
	corrected := *in
	corrected.Policies.Drift = appsv1.DriftCorrect // a hook that is gone has not succeeded
	var q Plan
	st := planComponent(&corrected, c, blockers{}, &q)
	p.Intents, p.Removals = append(p.Intents, q.Intents...), append(p.Removals, q.Actions...)
	if !st.Ready {
		p.Waits = append(append(p.Waits, hookWait(h, c, &st, when)), q.Waits...)
	}
	return st.Ready && len(q.Actions) == 0
}

// hookWait returns the wait of a removal for the hooks of a component.
func hookWait(h *RemovalHooks, c *Component, st *ComponentState, when string) Action {
	w := Action{Verb: VerbWait, Reason: ReasonPreRemove, Entry: appsv1.InventoryEntry{ID: c.Items[0].ID}}
	if len(st.NotReady) > 0 {
		w.Entry.ID = st.NotReady[0].ID()
	}
	w.Message = fmt.Sprintf("hooks of component %q run %s the removal: %s", c.Name, when, cmp.Or(st.Message, "started"))
	if st.Unhealthy {
		secret, _ := parseEntryID(h.Secret)
		w.Err = &RemovalHookError{Component: c.Name, When: when, Message: st.Message, Secret: secret}
		w.Message = w.Err.Error()
	}
	return w
}
