package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// HeldError says that more objects would be deleted than may be without approval.
type HeldError struct {
	// Deletes of Total objects that there were before the change; of all that there
	// are where that takes back one that was never complete.
	Deletes, Total int
	// Digest to approve.
	Digest string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%d of %d objects left the stack, more than spec.guard lets go at once: correct the stack, or approve with the annotation %s=%s",
		e.Deletes, e.Total, appsv1.ApproveAnnotation, e.Digest)
}

// leftover are the entries that nothing wants any more.
func leftover(inv *Inventory, wanted map[string]bool) []appsv1.InventoryEntry {
	var out []appsv1.InventoryEntry
	for id, e := range inv.entries {
		if !wanted[id] {
			out = append(out, e)
		}
	}
	// In an order of their own, so that messages stay the same.
	slices.SortFunc(out, func(a, b appsv1.InventoryEntry) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// approved returns the entries that may go. Those that need approval and have it
// are recorded first, so that what is left of them needs none later; those that
// have none wait.
func approved(in *Input, leaving []appsv1.InventoryEntry, wanted map[string]bool, p *Plan) []appsv1.InventoryEntry {
	if !in.Policies.Prune {
		return leaving // nothing is deleted
	}
	needs := func(e appsv1.InventoryEntry) bool { return !e.Leaving && e.State != appsv1.EntryIntended }
	var open []appsv1.InventoryEntry
	for _, e := range leaving {
		if needs(e) {
			open = append(open, e)
		}
	}
	if len(open) == 0 {
		return leaving
	}
	held := &HeldError{Deletes: len(open), Total: max(len(open), in.Inventory.before(wanted)), Digest: digest(open)}
	if !exceeds(&in.Policies, held) {
		return leaving
	}
	if in.Policies.Approved == held.Digest {
		for _, e := range open {
			e.Leaving = true
			p.Intents = append(p.Intents, e)
		}
		return leaving
	}
	p.Waits = append(p.Waits, Action{Verb: Wait, Reason: Guarded, Entry: open[0], Err: held, Message: held.Error()})
	return slices.DeleteFunc(slices.Clone(leaving), needs)
}

func exceeds(p *Policies, held *HeldError) bool {
	return held.Deletes > p.MaxDeletes ||
		(held.Deletes > appsv1.FewDeletes && held.Deletes*100 > p.MaxDeletePercent*held.Total)
}

// digest of the objects that would go: another set has another one.
func digest(entries []appsv1.InventoryEntry) string {
	var ids []string
	for i := range entries {
		ids = append(ids, entries[i].ID+" "+string(entries[i].UID)+"\n")
	}
	slices.Sort(ids)
	h := sha256.New()
	for _, id := range ids {
		h.Write([]byte(id))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
