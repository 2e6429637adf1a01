package plan

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// RemovalHooks are the hooks of a chart that run before and after the removal of its component.
type RemovalHooks struct {
	// Secret is the id of the Secret that they are kept in. Without it they do not run.
	Secret string
	// Pre and Post have the name and the wave of the component.
	Pre, Post Component
}

// planRemovalHooks plans the hooks of the components that are removed as a whole: those before a
// removal, then the removal of everything else, then those after it, then what they needed. It
// returns the entries that may be removed now; none while hooks run.
func planRemovalHooks(in *Snapshot, entries []appsv1.InventoryEntry, p *Plan) []appsv1.InventoryEntry {
	hooks := removedHooks(in, entries)
	if len(hooks) == 0 {
		return entries
	}
	if !planHookPhase(in, hooks, "before", func(h *RemovalHooks) *Component { return &h.Pre }, p) {
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
	if !planHookPhase(in, hooks, "after", func(h *RemovalHooks) *Component { return &h.Post }, p) {
		return nil
	}
	return kept // without its Secret, no hook runs again
}

// keepHooksFromRunning is called when an object of a component is handed over: the component moves
// to another owner, and is not removed. The entry of the Secret with its hooks no longer belongs to
// the component then.
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

// removedHooks returns the hooks of the components of which every object is removed, in reverse
// order of waves. None can run in a namespace that is being deleted.
func removedHooks(in *Snapshot, entries []appsv1.InventoryEntry) (out []*RemovalHooks) {
	if len(in.RemovalHooks) == 0 || in.Policies.Orphan || in.Policies.TerminatingNamespace != "" {
		return nil
	}
	removed := map[string]bool{}
	for i := range entries {
		removed[entries[i].ID] = true
	}
	stays := map[string]bool{}
	for id, e := range in.Inventory.All() {
		stays[e.Component] = stays[e.Component] || !removed[id]
	}
	for i := range in.RemovalHooks {
		h := &in.RemovalHooks[i]
		if e, _ := in.Inventory.Get(h.Secret); removed[h.Secret] && e.Component == h.Pre.Name && !stays[h.Pre.Name] {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b *RemovalHooks) int {
		return cmp.Or(cmp.Compare(b.Pre.Wave, a.Pre.Wave), cmp.Compare(a.Pre.Name, b.Pre.Name))
	})
	return out
}

// planHookPhase plans the next step of the hooks of one phase, one component after the other. It
// returns true if all have succeeded.
func planHookPhase(in *Snapshot, hooks []*RemovalHooks, when string, of func(*RemovalHooks) *Component, p *Plan) bool {
	for _, h := range hooks {
		c := of(h)
		if len(c.Items) == 0 {
			continue
		}
		var q Plan
		st := planComponent(in, c, nil, &q)
		p.Intents, p.Removals = append(p.Intents, q.Intents...), append(p.Removals, q.Actions...)
		if !st.Ready {
			p.Waits = append(append(p.Waits, hookWait(h, c, &st, when)), q.Waits...)
		}
		if !st.Ready || len(q.Actions) > 0 {
			return false
		}
	}
	return true
}

// hookWait returns the wait of a removal for the hooks of a component.
func hookWait(h *RemovalHooks, c *Component, st *ComponentState, when string) Action {
	w := Action{Verb: VerbWait, Reason: ReasonPreRemove, Entry: appsv1.InventoryEntry{ID: c.Items[0].ID}}
	if len(st.NotReady) > 0 {
		w.Entry.ID = st.NotReady[0].ID()
	}
	w.Message = fmt.Sprintf("hooks of component %q run %s the removal: %s", c.Name, when, cmp.Or(st.Message, "started"))
	if st.Unhealthy || st.Failed {
		secret, _ := parseEntryID(h.Secret)
		w.Err = &RemovalHookError{Component: c.Name, When: when, Message: st.Message, Secret: secret}
		w.Message = w.Err.Error()
	}
	return w
}
