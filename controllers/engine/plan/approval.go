package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// ApprovalRequiredError is returned when more objects would be deleted than are allowed without an
// approval.
type ApprovalRequiredError struct {
	// Deletes is the number of objects to delete, of Total objects before the change. For a change
	// that reverts an incomplete one, Total is the number of existing objects.
	Deletes, Total int
	// Digest is the digest to approve.
	Digest string
}

func (e *ApprovalRequiredError) Error() string {
	return fmt.Sprintf("%d of %d objects left the stack, more than spec.guard lets go at once: correct the stack, or "+
		"approve with the annotation %s=%s",
		e.Deletes, e.Total, appsv1.ApproveAnnotation, e.Digest)
}

// undesiredEntries returns the inventory entries that are no longer desired.
func undesiredEntries(inv *Inventory, desired map[string]bool) []appsv1.InventoryEntry {
	var out []appsv1.InventoryEntry
	for id, e := range inv.entries {
		if !desired[id] {
			out = append(out, e)
		}
	}
	// Sorted, so that messages stay the same.
	slices.SortFunc(out, byID)
	return out
}

// approvedRemovals returns the entries that may be removed now. Entries that need an approval and
// have it are persisted as approved first, so that the remaining ones need no approval later.
// Entries without the approval wait.
func approvedRemovals(in *Snapshot, undesired []appsv1.InventoryEntry, desired map[string]bool,
	p *Plan) []appsv1.InventoryEntry {
	if !in.Policies.Prune {
		return undesired // nothing is deleted
	}
	var unapproved, others []appsv1.InventoryEntry
	for _, e := range undesired {
		if e.Leaving || e.RetainedAt != nil || e.State == appsv1.EntryIntended ||
			e.State == appsv1.EntryContributed || in.isRemovalHook(e.ID) {
			others = append(others, e)
		} else {
			unapproved = append(unapproved, e)
		}
	}
	if len(unapproved) == 0 {
		return undesired
	}
	approval := &ApprovalRequiredError{Deletes: len(unapproved),
		Total: max(len(unapproved), in.Inventory.CountBefore(desired)), Digest: Digest(unapproved)}
	if !exceedsDeleteLimits(&in.Policies, approval) {
		return undesired
	}
	if in.Policies.ApprovedDigest == approval.Digest {
		for _, e := range unapproved {
			e.Leaving = true
			p.Intents = append(p.Intents, e)
		}
		return undesired
	}
	p.Waits = append(p.Waits, Action{Verb: VerbWait, Reason: ReasonApprovalRequired, Entry: unapproved[0],
		Err: approval, Message: approval.Error()})
	return others
}

// exceedsDeleteLimits is true when the number or the percentage of deletes is above its limit.
func exceedsDeleteLimits(p *Policies, approval *ApprovalRequiredError) bool {
	return approval.Deletes > p.MaxDeletes ||
		(approval.Deletes > appsv1.FewDeletes && approval.Deletes*100 > p.MaxDeletePercent*approval.Total)
}

// Digest returns a digest of the ids and uids of entries, independent of their order. Different
// sets have different digests.
func Digest(entries []appsv1.InventoryEntry) string {
	var ids []string
	for i := range entries {
		ids = append(ids, entries[i].ID+" "+string(entries[i].UID)+"\n")
	}
	slices.Sort(ids)
	sum := sha256.Sum256([]byte(strings.Join(ids, "")))
	return hex.EncodeToString(sum[:8])
}
