package engine

import (
	"context"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// Request is how an object is to go that a person asked to be removed.
type Request struct {
	// Hold leaves the object as it is for now: it is neither kept up nor removed.
	Hold bool
	// Keep says why an object is left; empty when it goes.
	Keep func(stacks.Ref) string
	// TakeCustomResources deletes a definition with all objects of it, whoever made them.
	TakeCustomResources bool
}

// request is how an entry is to go that a person asked to be removed; nil for
// one that nobody did.
func (p *Policies) request(e *appsv1.InventoryEntry) *Request {
	if p.Asked == nil {
		return nil
	}
	return p.Asked(e)
}

// asked splits entries into those that a person asked to go, and those that
// nobody named. What is held is in neither.
func asked(p *Policies, entries []appsv1.InventoryEntry) (yes, no []appsv1.InventoryEntry) {
	if p.Asked == nil {
		return nil, entries
	}
	for i := range entries {
		switch r := p.Asked(&entries[i]); {
		case r == nil:
			no = append(no, entries[i])
		case !r.Hold:
			yes = append(yes, entries[i])
		}
	}
	return yes, no
}

// PlanAsked plans the next step of removing what a person asked to go. Neither
// the rest of the owner nor a guard holds it.
func PlanAsked(in *Input) Plan {
	yes, _ := asked(&in.Policies, in.Inventory.Entries())
	return planAsked(in, yes)
}

// atOnce is an input in which what is asked to go waits for no plan of others: it is
// handed over to who is known to want it.
func atOnce(in *Input) *Input {
	heir := in.Policies.Heir
	if heir == nil {
		return in
	}
	out := *in
	out.Policies.Heir = func(id string) (*OwnerKey, string) {
		to, _ := heir(id)
		return to, ""
	}
	return &out
}

func planAsked(in *Input, entries []appsv1.InventoryEntry) Plan {
	var p Plan
	if entries = inherited(in, entries, &p); len(p.Removals) == 0 && len(p.Waits) == 0 {
		planRemovals(in, entries, &p)
	}
	return p
}

// Remove takes every step that is possible now towards removing what a person
// asked to go, and touches nothing else. It reads only the inventory.
func (e *Engine) Remove(ctx context.Context, t *Target, c *Client, o Owner, retry Retry) (*Report, error) {
	stays := staying(o)
	if err := e.dropUnserved(ctx, t, o, stays); err != nil {
		return nil, err
	}
	e.use(ctx, t, o, nil, nil)
	return e.rounds(ctx, t, c, o, retry, stays, PlanAsked)
}

// staying are the ids that nobody asked to go, or not yet.
func staying(o Owner) map[string]bool {
	p := o.Policies()
	yes, _ := asked(&p, o.Inventory().Entries())
	out := map[string]bool{}
	for id := range o.Inventory().entries {
		out[id] = true
	}
	for i := range yes {
		delete(out, yes[i].ID)
	}
	return out
}

// Digest of a set of objects: another set has another one.
func Digest(entries []appsv1.InventoryEntry) string { return digest(entries) }
