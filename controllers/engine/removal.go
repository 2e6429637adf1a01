package engine

import (
	"sort"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// Ranks of removal inside a wave: what could stand in the way of the others
// goes first, what holds others goes last.
const (
	rankAdmission = iota
	rankCustom
	rankOther
	rankCRD
	// The record of a Helm release goes when the release is gone.
	rankRecord
	rankNamespace
)

// planLeaving plans the removal of objects that are no longer wanted.
func planLeaving(in *Input, leaving []appsv1.InventoryEntry, p *Plan) {
	if in.Policies.Prune {
		planRemovals(in, leaving, p)
		return
	}
	planReleases(in, leaving, "prune is off", p)
}

// planReleases plans to leave objects as they are, without our label and marks.
func planReleases(in *Input, entries []appsv1.InventoryEntry, why string, p *Plan) {
	for _, e := range entries {
		ref, err := stacks.ParseID(e.ID)
		if err != nil {
			p.Removals = append(p.Removals, Action{Verb: Drop, Reason: Invalid, Entry: e, Message: err.Error()})
			continue
		}
		a := decideRemoval(in, e, ref)
		switch {
		case a.Verb == Delete, a.Reason == Protected:
			a.Verb, a.Message = Release, why
			if a.Reason == Protected {
				a.Reason = Removed
			}
			fallthrough
		case a.Verb != Wait:
			p.Removals = append(p.Removals, a)
		default:
			p.Waits = append(p.Waits, a)
		}
	}
}

// PlanTeardown plans the next step of removing everything that the inventory lists.
func PlanTeardown(in *Input) Plan {
	var p Plan
	entries := inherited(in, in.Inventory.Entries(), &p)
	switch {
	case len(p.Removals) > 0 || len(p.Waits) > 0:
		// What others take is not to hold, nor to be held by, what goes.
	case in.Policies.Orphan:
		planReleases(in, entries, "spec.deletionPolicy is Orphan", &p)
	default:
		planRemovals(in, entries, &p)
	}
	return p
}

// planRemovals has the Jobs run first that come before a removal. Then it takes
// waves backwards, and ranks inside a wave in order; each is proven gone before the
// next starts.
func planRemovals(in *Input, entries []appsv1.InventoryEntry, p *Plan) {
	if planRuns(in, entries, p) {
		return
	}
	slots, invalid := ordered(entries)
	p.Removals = append(p.Removals, invalid...)
	for i := range slots {
		s := &slots[i]
		if i > 0 && !s.beside(&slots[i-1]) && (len(p.Removals) > 0 || len(p.Waits) > 0) {
			return
		}
		a := decideRemoval(in, s.entry, s.ref)
		if a.Verb == Wait {
			p.Waits = append(p.Waits, a)
		} else {
			p.Removals = append(p.Removals, a)
		}
	}
}

// slot is the place of an entry in the order of a removal.
type slot struct {
	entry appsv1.InventoryEntry
	ref   stacks.Ref
	rank  int
}

// beside is true when two slots go side by side.
func (s *slot) beside(other *slot) bool {
	return s.entry.Wave == other.entry.Wave && s.rank == other.rank
}

// ordered puts entries in the order in which they go. Invalid are those that can
// name no object: nothing that we wrote.
func ordered(entries []appsv1.InventoryEntry) (slots []slot, invalid []Action) {
	for _, e := range entries {
		ref, err := stacks.ParseID(e.ID)
		if err != nil {
			invalid = append(invalid, Action{Verb: Drop, Reason: Invalid, Entry: e, Message: err.Error()})
			continue
		}
		slots = append(slots, slot{e, ref, rank(ref, e)})
	}
	sort.Slice(slots, func(i, j int) bool {
		a, b := &slots[i], &slots[j]
		if sa, sb := a.entry.State == appsv1.EntryShared, b.entry.State == appsv1.EntryShared; sa != sb {
			return sb // shared namespaces go after everything else
		}
		if a.entry.Wave != b.entry.Wave {
			return a.entry.Wave > b.entry.Wave
		}
		if a.rank != b.rank {
			return a.rank < b.rank
		}
		return a.entry.ID < b.entry.ID
	})
	return slots, invalid
}

func rank(ref stacks.Ref, e appsv1.InventoryEntry) int {
	switch {
	case ref.Group == "admissionregistration.k8s.io", ref.Group == "apiregistration.k8s.io":
		return rankAdmission
	case ref.Group == "apiextensions.k8s.io":
		return rankCRD
	case ref.Group == "" && ref.Kind == "Secret" && strings.HasPrefix(ref.Name, stacks.HelmRecordPrefix):
		return rankRecord
	case e.State == appsv1.EntryShared, ref.Group == "" && ref.Kind == "Namespace":
		return rankNamespace
	case !IsBuiltIn(ref.Group):
		return rankCustom
	default:
		return rankOther
	}
}

// decideRemoval says how one object goes. The engine deletes only what the
// inventory lists and what its mark says is ours.
func decideRemoval(in *Input, e appsv1.InventoryEntry, ref stacks.Ref) Action {
	a := Action{Entry: e, Reason: Removed}
	if held := in.HeldBack(e.ID); held != "" {
		a.Verb, a.Reason, a.Message, a.Err = Wait, Held, held, errHeld
		return a
	}
	if err := in.Unsynced(ref.GroupKind()); err != nil && e.State != appsv1.EntryShared {
		a.Verb, a.Reason, a.Message = Wait, Unsynced, ref.String()+": "+err.Error()
		return a
	}
	if l, ok := in.Live(ref); ok {
		a.Live = &l
	}
	switch {
	case e.State == appsv1.EntryShared && in.Policies.keeps(&e, ref) != "":
		a.Verb, a.Reason, a.Message = Release, Kept, in.Policies.keeps(&e, ref)
	case e.State == appsv1.EntryShared:
		a.Verb = Delete
	case a.Live == nil:
		// Perhaps gone, perhaps without its mark: one GET tells.
		a.Verb, a.Reason = Delete, Unsure
	case a.Live.Mark.Owner != in.Owner.String():
		a.Verb, a.Reason = Drop, Owned
	case (a.Live.Deleting || in.Deleted(e.ID) == a.Live.UID) && a.Live.LabelLost:
		a.Verb, a.Reason = Delete, Unsure // no watch tells when it is gone
	case a.Live.Deleting, in.Deleted(e.ID) == a.Live.UID:
		a.Verb, a.Reason = Wait, Leaving
		a.Message = leavingObject(a.Live).Error()
	case e.State == appsv1.EntryAdopted, a.Live.Adopted:
		a.Verb, a.Message = Release, "it was there before us"
	case e.State != appsv1.EntryIntended && e.UID != "" && a.Live.UID != e.UID:
		// Someone deleted it and made it again: theirs, whatever its annotations say.
		a.Verb, a.Reason = Drop, Owned
	case in.Policies.keeps(&e, ref) != "":
		a.Verb, a.Reason, a.Message = Release, Kept, in.Policies.keeps(&e, ref)
	case a.Live.Protected:
		a.Verb, a.Reason, a.Message = Wait, Protected, (&ProtectedError{Ref: ref}).Error()
	default:
		a.Verb = Delete
	}
	return a
}
