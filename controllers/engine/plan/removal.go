package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
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

// notPruned is why an object that left the stack is released.
const notPruned = "spec.prune is false"

// planReleases plans to leave objects in the cluster, without our label and marks.
func planReleases(in *Snapshot, entries []appsv1.InventoryEntry, why string, p *Plan) {
	for _, e := range entries {
		ref, err := parseEntryID(e.ID)
		if err != nil {
			p.Removals = append(p.Removals, dropInvalid(e, err))
			continue
		}
		if e.State == appsv1.EntryContributed { // the fields stay, too
			p.addRemoval(Action{Verb: VerbDrop, Reason: ReasonKept, Entry: e, Message: why})
			continue
		}
		a := decideRemoval(in, e, ref)
		if a.Reason == ReasonProtected {
			a.Verb, a.Reason = VerbDelete, ReasonRemoved
		}
		if a.Verb == VerbDelete {
			a.Verb, a.Message = VerbRelease, why
		}
		p.addRemoval(a)
	}
}

// Teardown plans the actions that are possible now to remove all objects of the inventory. It
// is a pure function.
func Teardown(in *Snapshot) Plan {
	all := *in
	all.Teardown, in = true, &all
	var p Plan
	entries := planHandovers(in, in.Inventory.Entries(), &p)
	inUse := p.splitLeft()
	switch {
	case len(p.Removals) > 0 || len(p.Waits) > 0:
		// Handovers come first: they must not wait for removals, nor removals for them.
	case in.Policies.Orphan:
		for i := range inUse { // it stays in the cluster in any case
			entries = append(entries, inUse[i].Entry)
		}
		planReleases(in, entries, "spec.deletionPolicy is Orphan", &p)
		return p
	default:
		planRemovals(in, entries, &p)
	}
	p.Waits = append(p.Waits, inUse...)
	return p
}

// planRemovals plans the removal of entries: first the Jobs and hooks that run before a removal,
// then the waves in reverse order, and the ranks inside a wave in order. Each is confirmed to be
// gone before the next starts.
func planRemovals(in *Snapshot, entries []appsv1.InventoryEntry, p *Plan) {
	if planPreRemoveJobs(in, entries, p) {
		return
	}
	planOrderedRemovals(in, planRemovalHooks(in, entries, p), p)
}

// planOrderedRemovals is planRemovals without Jobs and hooks.
func planOrderedRemovals(in *Snapshot, entries []appsv1.InventoryEntry, p *Plan) {
	slots, invalid := orderRemovals(entries)
	p.Removals = append(p.Removals, invalid...)
	for i := range slots {
		s := &slots[i]
		if i > 0 && !s.sameStep(&slots[i-1]) && (len(p.Removals) > 0 || len(p.Waits) > 0) {
			return
		}
		p.addRemoval(decideRemoval(in, s.entry, s.ref))
	}
}

// addRemoval adds an action to the removals, or to the waits.
func (p *Plan) addRemoval(a Action) {
	if a.Verb == VerbWait {
		p.Waits = append(p.Waits, a)
	} else {
		p.Removals = append(p.Removals, a)
	}
}

// dropInvalid returns the action for an entry with an invalid id, which the engine never writes.
func dropInvalid(e appsv1.InventoryEntry, err error) Action {
	return Action{Verb: VerbDrop, Reason: ReasonInvalid, Entry: e, Message: err.Error()}
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

// rankEntries returns entries in the order of waves and ranks. invalid has the actions that drop
// entries with an invalid id.
func rankEntries(entries []appsv1.InventoryEntry) (slots []orderedEntry, invalid []Action) {
	for _, e := range entries {
		ref, err := parseEntryID(e.ID)
		if err != nil {
			invalid = append(invalid, dropInvalid(e, err))
			continue
		}
		slots = append(slots, orderedEntry{e, ref, rank(ref, e)})
	}
	slices.SortFunc(slots, func(a, b orderedEntry) int {
		return cmp.Or(cmp.Compare(b.entry.Wave, a.entry.Wave), cmp.Compare(a.rank, b.rank), byID(a.entry, b.entry))
	})
	return slots, invalid
}

// orderRemovals returns entries in the order of their removal: shared namespaces are removed after
// everything else. For invalid, see rankEntries.
func orderRemovals(entries []appsv1.InventoryEntry) (slots []orderedEntry, invalid []Action) {
	ranked, invalid := rankEntries(entries)
	var shared []orderedEntry
	for _, s := range ranked {
		if s.entry.State == appsv1.EntryShared {
			shared = append(shared, s)
		} else {
			slots = append(slots, s)
		}
	}
	return append(slots, shared...), invalid
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
	if ns := in.Policies.TerminatingNamespace; ns != "" && ref.Namespace == ns {
		return decideTerminating(in, a, ref)
	}
	if why := in.Unsettled[e.ID]; why != "" {
		a.Verb, a.Reason, a.Message = VerbWait, ReasonUnconfirmed, why
		return a
	}
	if e.State == appsv1.EntryContributed {
		return decideWithdrawal(in, a)
	}
	if in.waitsForRetry(&a, VerbWait) || (e.State != appsv1.EntryShared && in.waitsForIndex(&a, ref)) {
		return a
	}
	a.Live = in.Objects[e.ID]
	keepReason := in.Policies.KeepReason(&e, ref)
	switch {
	case e.State == appsv1.EntryShared && keepReason != "":
		a.Verb, a.Reason, a.Message = VerbRelease, ReasonKept, keepReason
	case e.State == appsv1.EntryShared:
		a.Verb = VerbDelete
	case a.Live == nil:
		// It is gone, or has no mark: a GET confirms which.
		a.Verb, a.Reason = VerbDelete, ReasonUnconfirmed
	case a.Live.Mark.Owner != in.Owner.String():
		a.Verb, a.Reason = VerbDrop, ReasonOwnedByOther
	case in.isDeleting(e.ID, a.Live) && a.Live.LabelLost:
		a.Verb, a.Reason = VerbDelete, ReasonUnconfirmed // no watch observes its deletion
	case in.isDeleting(e.ID, a.Live):
		a.Verb, a.Reason = VerbWait, ReasonBeingDeleted
		a.Message = NewBeingDeletedError(a.Live).Error()
	case e.State == appsv1.EntryAdopted, a.Live.Adopted:
		a.Verb, a.Message = VerbRelease, "it existed before"
	case e.State != appsv1.EntryIntended && e.UID != "" && a.Live.UID != e.UID:
		// Another client deleted and recreated it: it is theirs, whatever its annotations are.
		a.Verb, a.Reason = VerbDrop, ReasonOwnedByOther
	case keepReason != "":
		a.Verb, a.Reason, a.Message = VerbRelease, ReasonKept, keepReason
	case a.Live.KeptByHelm:
		a.Verb, a.Reason, a.Message = VerbRelease, ReasonKept, KeptByHelmMessage
	case in.keeps(&e, a.Live):
		a.Verb, a.Reason, a.Message = VerbRelease, ReasonKept, KeptByAnnotationMessage
	case a.Live.Protected:
		a.Verb, a.Reason, a.Message = VerbWait, ReasonProtected, (&ProtectedError{Ref: ref}).Error()
	default:
		a.Verb = VerbDelete
	}
	return a
}

// keeps reports whether the annotations of an object release it instead.
func (s *Snapshot) keeps(e *appsv1.InventoryEntry, l *live.Object) bool {
	if s.Teardown || s.Policies.RequestFor(e) != nil {
		return l.KeptWhenDeleted
	}
	return l.KeptWhenPruned
}

// KeptByAnnotationMessage is why an object is released that an annotation keeps.
const KeptByAnnotationMessage = "an annotation keeps it: " + appsv1.KeepAnnotation + ", or that of Flux or Argo CD"

// KeptByHelmMessage is why an object is released that helm uninstall would keep.
const KeptByHelmMessage = "its annotation " + live.HelmPolicyAnnotation + " is keep"

// decideTerminating returns the action for an object that is deleted with its namespace.
func decideTerminating(in *Snapshot, a Action, ref stacks.Ref) Action {
	if in.waitsForIndex(&a, ref) {
		return a
	}
	a.Reason = ReasonNamespaceDeleted
	if a.Live = in.Objects[a.Entry.ID]; a.Live == nil || a.Live.Mark.Owner != in.Owner.String() {
		a.Verb = VerbDrop
		return a
	}
	a.Verb, a.Message = VerbWait, fmt.Sprintf("%s is deleted with its namespace", ref)
	if a.Live.Deleting {
		a.Message = NewBeingDeletedError(a.Live).Error()
	}
	return a
}

// RemovalOrder returns entries in the order of their removal. The objects of one step are removed
// concurrently, and the next step starts when they are gone.
func RemovalOrder(entries []appsv1.InventoryEntry) (steps [][]appsv1.InventoryEntry) {
	slots, _ := rankEntries(entries)
	for i := range slots {
		if i == 0 || !slots[i].sameStep(&slots[i-1]) {
			steps = append(steps, nil)
		}
		steps[len(steps)-1] = append(steps[len(steps)-1], slots[i].entry)
	}
	return steps
}

// builtInGroups are the groups that every API server serves itself (k8s.io/api): no
// CustomResourceDefinition can provide a kind of these groups.
var builtInGroups = map[string]bool{
	"": true, "apps": true, "batch": true, "autoscaling": true, "policy": true,
	"admissionregistration.k8s.io": true, "apiextensions.k8s.io": true, "apiregistration.k8s.io": true,
	"authentication.k8s.io": true, "authorization.k8s.io": true, "certificates.k8s.io": true,
	"coordination.k8s.io": true, "discovery.k8s.io": true, "events.k8s.io": true,
	"flowcontrol.apiserver.k8s.io": true, "internal.apiserver.k8s.io": true, "networking.k8s.io": true,
	"node.k8s.io": true, "rbac.authorization.k8s.io": true, "resource.k8s.io": true,
	"scheduling.k8s.io": true, "storage.k8s.io": true, "storagemigration.k8s.io": true,
}

// IsBuiltIn is true for API groups that every API server serves itself.
func IsBuiltIn(group string) bool { return builtInGroups[group] }
