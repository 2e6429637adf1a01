package plan

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// Ranks of removal inside a wave. Objects that could block the deletion of others are removed
// first, objects that contain others last.
const (
	rankAdmission = iota
	rankCustomResource
	rankOther
	rankCRD
	// rankHelmRecord: the record of a Helm release is removed after the objects of the release.
	rankHelmRecord
	rankNamespace
)

// planPrune plans the removal of objects that are no longer desired.
func planPrune(in *Snapshot, undesired []appsv1.InventoryEntry, p *Plan) {
	if in.Policies.Prune {
		planRemovals(in, undesired, p)
		return
	}
	planReleases(in, undesired, "spec.prune is false", p)
}

// planReleases plans to leave objects in the cluster, without our label and marks.
func planReleases(in *Snapshot, entries []appsv1.InventoryEntry, why string, p *Plan) {
	for _, e := range entries {
		ref, err := stacks.ParseID(e.ID)
		if err != nil {
			p.Removals = append(p.Removals, Action{Verb: VerbDrop, Reason: ReasonInvalid, Entry: e, Message: err.Error()})
			continue
		}
		a := decideRemoval(in, e, ref)
		switch {
		case a.Verb == VerbDelete, a.Reason == ReasonProtected:
			a.Verb, a.Message = VerbRelease, why
			if a.Reason == ReasonProtected {
				a.Reason = ReasonRemoved
			}
			fallthrough
		case a.Verb != VerbWait:
			p.Removals = append(p.Removals, a)
		default:
			p.Waits = append(p.Waits, a)
		}
	}
}

// Teardown plans the actions that are possible now to remove all objects of the inventory. It
// is a pure function.
func Teardown(in *Snapshot) Plan {
	var p Plan
	entries := planHandovers(in, in.Inventory.Entries(), &p)
	switch {
	case len(p.Removals) > 0 || len(p.Waits) > 0:
		// Handovers come first: they must not wait for removals, nor removals for them.
	case in.Policies.Orphan:
		planReleases(in, entries, "spec.deletionPolicy is Orphan", &p)
	default:
		planRemovals(in, entries, &p)
	}
	return p
}

// planRemovals plans the removal of entries: first the Jobs that run before a removal, then the
// waves in reverse order, and the ranks inside a wave in order. Each is confirmed to be gone before
// the next starts.
func planRemovals(in *Snapshot, entries []appsv1.InventoryEntry, p *Plan) {
	if planPreRemoveJobs(in, entries, p) {
		return
	}
	slots, invalid := orderRemovals(entries)
	p.Removals = append(p.Removals, invalid...)
	for i := range slots {
		s := &slots[i]
		if i > 0 && !s.sameStep(&slots[i-1]) && (len(p.Removals) > 0 || len(p.Waits) > 0) {
			return
		}
		a := decideRemoval(in, s.entry, s.ref)
		if a.Verb == VerbWait {
			p.Waits = append(p.Waits, a)
		} else {
			p.Removals = append(p.Removals, a)
		}
	}
}

// orderedEntry is an entry in the order of a removal.
type orderedEntry struct {
	entry appsv1.InventoryEntry
	ref   stacks.Ref
	rank  int
}

// sameStep is true when two entries are removed concurrently.
func (s *orderedEntry) sameStep(other *orderedEntry) bool {
	return s.entry.Wave == other.entry.Wave && s.rank == other.rank
}

// orderRemovals returns entries in the order of their removal. invalid has the actions that drop
// entries with an invalid id, which the engine never writes.
func orderRemovals(entries []appsv1.InventoryEntry) (slots []orderedEntry, invalid []Action) {
	for _, e := range entries {
		ref, err := stacks.ParseID(e.ID)
		if err != nil {
			invalid = append(invalid, Action{Verb: VerbDrop, Reason: ReasonInvalid, Entry: e, Message: err.Error()})
			continue
		}
		slots = append(slots, orderedEntry{e, ref, rank(ref, e)})
	}
	sort.Slice(slots, func(i, j int) bool {
		a, b := &slots[i], &slots[j]
		if sa, sb := a.entry.State == appsv1.EntryShared, b.entry.State == appsv1.EntryShared; sa != sb {
			return sb // shared namespaces are removed after everything else
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

// rank returns the rank of an entry inside its wave.
func rank(ref stacks.Ref, e appsv1.InventoryEntry) int {
	switch {
	case ref.Group == "admissionregistration.k8s.io", ref.Group == "apiregistration.k8s.io":
		return rankAdmission
	case ref.Group == "apiextensions.k8s.io":
		return rankCRD
	case ref.Group == "" && ref.Kind == "Secret" && strings.HasPrefix(ref.Name, stacks.HelmReleaseSecretPrefix):
		return rankHelmRecord
	case e.State == appsv1.EntryShared, ref.Group == "" && ref.Kind == "Namespace":
		return rankNamespace
	case !IsBuiltIn(ref.Group):
		return rankCustomResource
	default:
		return rankOther
	}
}

// decideRemoval returns the action to remove one object. The engine deletes only objects that are
// in the inventory and have the owner's mark.
func decideRemoval(in *Snapshot, e appsv1.InventoryEntry, ref stacks.Ref) Action {
	a := Action{Entry: e, Reason: ReasonRemoved}
	if reason := in.backoffMessage(e.ID, ""); reason != "" {
		a.Verb, a.Reason, a.Message, a.Err = VerbWait, ReasonBackingOff, reason, errBackingOff
		return a
	}
	if err := in.SyncErrors[ref.GroupKind()]; err != nil && e.State != appsv1.EntryShared {
		a.Verb, a.Reason, a.Message = VerbWait, ReasonIndexNotSynced, ref.String()+": "+err.Error()
		return a
	}
	a.Live = in.Objects[e.ID]
	switch {
	case e.State == appsv1.EntryShared && in.Policies.KeepReason(&e, ref) != "":
		a.Verb, a.Reason, a.Message = VerbRelease, ReasonKept, in.Policies.KeepReason(&e, ref)
	case e.State == appsv1.EntryShared:
		a.Verb = VerbDelete
	case a.Live == nil:
		// It is gone, or has no mark: a GET confirms which.
		a.Verb, a.Reason = VerbDelete, ReasonUnconfirmed
	case a.Live.Mark.Owner != in.Owner.String():
		a.Verb, a.Reason = VerbDrop, ReasonOwnedByOther
	case (a.Live.Deleting || in.PendingDeletions[e.ID] == a.Live.UID) && a.Live.LabelLost:
		a.Verb, a.Reason = VerbDelete, ReasonUnconfirmed // no watch observes its deletion
	case a.Live.Deleting, in.PendingDeletions[e.ID] == a.Live.UID:
		a.Verb, a.Reason = VerbWait, ReasonBeingDeleted
		a.Message = NewBeingDeletedError(a.Live).Error()
	case e.State == appsv1.EntryAdopted, a.Live.Adopted:
		a.Verb, a.Message = VerbRelease, "it existed before"
	case e.State != appsv1.EntryIntended && e.UID != "" && a.Live.UID != e.UID:
		// Another client deleted and recreated it: it is theirs, whatever its annotations are.
		a.Verb, a.Reason = VerbDrop, ReasonOwnedByOther
	case in.Policies.KeepReason(&e, ref) != "":
		a.Verb, a.Reason, a.Message = VerbRelease, ReasonKept, in.Policies.KeepReason(&e, ref)
	case a.Live.Protected:
		a.Verb, a.Reason, a.Message = VerbWait, ReasonProtected, (&ProtectedError{Ref: ref}).Error()
	default:
		a.Verb = VerbDelete
	}
	return a
}

// RemovalOrder returns entries in the order of their removal. The objects of one step are removed
// concurrently, and the next step starts when they are gone.
func RemovalOrder(entries []appsv1.InventoryEntry) (steps [][]appsv1.InventoryEntry) {
	type place struct {
		wave int32
		rank int
	}
	by := map[place][]appsv1.InventoryEntry{}
	var places []place
	for i := range entries {
		ref, err := stacks.ParseID(entries[i].ID)
		if err != nil {
			continue
		}
		p := place{entries[i].Wave, rank(ref, entries[i])}
		if by[p] == nil {
			places = append(places, p)
		}
		by[p] = append(by[p], entries[i])
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.wave, a.wave), cmp.Compare(a.rank, b.rank))
	})
	for _, p := range places {
		slices.SortFunc(by[p], func(a, b appsv1.InventoryEntry) int { return cmp.Compare(a.ID, b.ID) })
		steps = append(steps, by[p])
	}
	return steps
}
