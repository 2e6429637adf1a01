package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	storagev1alpha1 "github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/stacks"
)

// DefaultPolicies are the policies of an owner that sets none.
var DefaultPolicies = Policies{Drift: appsv1.DriftCorrect, Adopt: appsv1.AdoptUnowned, Prune: true,
	MaxDeletes: appsv1.DefaultMaxDeletes, MaxDeletePercent: appsv1.DefaultMaxDeletePercent,
	ProtectKinds: []string{"PersistentVolumeClaim"}}

// KeepReason returns why an object is released where it would be deleted; empty when it is deleted.
// After Released, an active removal request decides, else ProtectKinds.
func (p *Policies) KeepReason(e *appsv1.InventoryEntry, ref stacks.Ref) string {
	if why := cmp.Or(p.Released[e.ID], ownDefinitionReason(ref)); why != "" {
		return why
	}
	if r := p.RequestFor(e); r != nil && !r.Suspended {
		return r.KeepReason(ref)
	}
	return p.ProtectReason(ref)
}

// Retains is true for an object that a removal leaves in the cluster according to inventory and
// policies: it existed before, others own or share it, or it is kept.
func (p *Policies) Retains(e *appsv1.InventoryEntry) bool {
	ref, err := parseEntryID(e.ID)
	return err != nil || p.Orphan || e.State == appsv1.EntryAdopted || e.State == appsv1.EntryShared ||
		e.State == appsv1.EntryContributed || p.KeepReason(e, ref) != ""
}

// ProtectReason returns why an object is never deleted without a removal request; empty when it may
// be deleted.
func (p *Policies) ProtectReason(ref stacks.Ref) string {
	if why := ownDefinitionReason(ref); why != "" {
		return why
	}
	if !slices.Contains(p.ProtectKinds, ref.Kind) {
		return ""
	}
	return fmt.Sprintf("spec.guard.protectKinds has %s", ref.Kind)
}

// ownGroups are the API groups of this controller.
var ownGroups = []string{appsv1.GroupVersion.Group, clusterv1.GroupVersion.Group, storagev1alpha1.GroupVersion.Group}

// ownDefinitionReason returns why the definition of a kind of this controller is never deleted;
// empty for other objects.
func ownDefinitionReason(ref stacks.Ref) string {
	_, group, _ := strings.Cut(ref.Name, ".")
	if ref.Group != "apiextensions.k8s.io" || ref.Kind != "CustomResourceDefinition" ||
		!slices.Contains(ownGroups, group) {
		return ""
	}
	return "the CustomResourceDefinition defines a kind of this controller, " +
		"and all objects of the kind would be deleted with it"
}

// Policies control how the engine reconciles an owner, independent of the desired objects.
type Policies struct {
	Drift  appsv1.DriftMode
	Ignore []appsv1.IgnoreRule
	Adopt  appsv1.AdoptMode
	Prune  bool
	Force  bool
	// Orphan leaves the objects in the cluster when the owner is deleted.
	Orphan bool
	// MaxDeletes and MaxDeletePercent limit the number, and the percentage of the objects before
	// the change, that may be pruned at once. More need an approval: ApprovedDigest has to be the
	// digest of these objects.
	MaxDeletes, MaxDeletePercent int
	ApprovedDigest               string
	// HandoverTo decides what happens to an object which this owner no longer desires, and which
	// another owner may desire. A nil function means that objects are never handed over. The engine
	// calls it before it plans, for Snapshot.Handovers; planning does not.
	HandoverTo func(id string) HandoverDecision
	// AdoptStraysSince is the creation time of the owner. Objects that the engine created for the
	// owner after it, and that are missing in the inventory, are adopted. Zero disables this.
	AdoptStraysSince time.Time
	// Released are objects that no longer belong to the owner, by id, with the reason. Their
	// entries are not desired, and where they would be deleted, they are released at once.
	Released map[string]string
	// TerminatingNamespace is a namespace that is being deleted: a removal sends no requests for
	// the objects in it, and waits until they are gone. Empty: none.
	TerminatingNamespace string
	// ProtectKinds are kinds whose objects are released where they would be deleted.
	ProtectKinds []string
	// Redact removes values that are not public from a message of the API server; nil for owners
	// without such values. It must not use what changes with the owner.
	Redact func(message string) string
	// Report returns the value of live.ReportAnnotation for an object; nil for owners whose status
	// reports nothing.
	Report func(ref stacks.Ref) string
	// RemovalRequest returns a user's request to remove an object; nil for an object without one.
	// It takes precedence over Prune, ProtectKinds and the limits of deletes.
	RemovalRequest func(e *appsv1.InventoryEntry) *RemovalRequest
}

// TakesOver is true if existing objects of other tools are taken over permanently.
func (p *Policies) TakesOver() bool {
	return p.Adopt == appsv1.AdoptAlways || p.Adopt == appsv1.AdoptUnchanged
}

// RequestFor returns the removal request for an entry; nil without one.
func (p *Policies) RequestFor(e *appsv1.InventoryEntry) *RemovalRequest {
	if p.RemovalRequest == nil {
		return nil
	}
	return p.RemovalRequest(e)
}
