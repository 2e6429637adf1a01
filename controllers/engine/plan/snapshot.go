package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Item is a desired object, resolved for the target cluster.
type Item struct {
	stacks.Object
	// ID is the id of the object in inventories and marks.
	ID string
	// Mapping is the REST mapping of the kind; nil when ResolveErr is set because there is none.
	Mapping *meta.RESTMapping
	// ResolveErr is set when the object cannot be sent: its kind is not served or not known yet, or
	// the object is invalid (*InvalidObjectError).
	ResolveErr error
	// ContentHash is the hash of everything that is sent: the manifest and what the engine adds.
	ContentHash string
	// ReadyExpr and Ignore are written into annotations of the object.
	ReadyExpr string
	Ignore    []string
	// Report has the fields that the status of the owner reports, see live.ReportAnnotation.
	Report string
	// Step is the step of the object in its component. A step starts when all objects of the
	// earlier steps are ready.
	Step int
	// Component is the component of the object, and Wave the wave of that component.
	Component string
	Wave      int32
	// RunsOnce is true for hooks and Jobs: after they completed, they do not run again.
	RunsOnce bool
	// Settled is true for a hook that does not run now: it is of other events, or the release of
	// its component is complete.
	Settled bool
	// PostStep and PostHash are the step and the content hash of a hook before the other objects
	// that is applied after them again.
	PostStep int
	PostHash string
	// PreRemove is set for a Job that stays suspended until its component is removed: its position
	// among these Jobs of the component, counted from 1.
	PreRemove int32
	// Shared is true for a namespace that the component requires and may share with other owners.
	Shared bool
	// Contribute is true for fields in an object of another owner.
	Contribute bool
}

// Component is the items of one component, in the order in which they are sent.
type Component struct {
	Name      string
	Version   string
	DependsOn []string
	// BlockedOn names dependencies outside the stack that are not ready. Until they are, no new
	// content is sent, and applied content is kept as it is.
	BlockedOn []string
	Wave      int32
	// Retain is the number of objects of each kind that stay after they left the stack; nil if they
	// are removed like others.
	Retain *int32
	Items  []Item
	// Test is true for the tests of another component: nothing waits for them, and nothing depends
	// on their result.
	Test bool
}

// Snapshot is the input of planning: the desired state, and the observed state at one time. Nothing
// of it changes while it is in use, and planning only reads it. Maps are keyed by the id of the
// object unless they say otherwise.
type Snapshot struct {
	Owner OwnerKey
	// Now is the time of the snapshot.
	Now        time.Time
	Components []Component
	Inventory  *Inventory
	Policies   Policies
	// Objects are the objects of the components and of the inventory that the index knows.
	Objects map[string]*live.Object
	// Contributed are the objects that the owner contributes to; those that are not observed yet
	// are missing.
	Contributed map[string]live.ContributedObject
	// Existing has the webhook configurations and create-only objects that exist although the index
	// does not know them.
	Existing map[string]bool
	// Succeeded has the Jobs and Pods that were observed to complete successfully, also if they
	// were deleted after that. Those with another uid than in the inventory do not count.
	Succeeded map[string]bool
	// Collected are the Jobs whose result is not to be read now: that was tried.
	Collected map[string]bool
	// DoneFor is the time since the completion of Jobs that are deleted some time after it.
	DoneFor map[string]time.Duration
	// SyncErrors has the kinds of which the index may not know every object.
	SyncErrors map[schema.GroupKind]error
	// Backoffs are the objects that are not to be written now.
	Backoffs map[string]Backoff
	// PendingDeletions are the uids of objects whose deletion was accepted and that have not been
	// observed to be gone.
	PendingDeletions map[string]types.UID
	// Handovers are the decisions about the entries that the owner may no longer desire; nil if
	// objects are never handed over.
	Handovers map[string]HandoverDecision
	// FormerOwners are the display names of the owners that create a CustomResourceDefinition again
	// that this owner used: it was deleted a moment ago.
	FormerOwners map[string]string
	// Teardown is true for the removal of all objects, and false for the removal of what left the
	// stack.
	Teardown bool
	// RemovalHooks are the hooks that charts run when their component is removed.
	RemovalHooks []RemovalHooks
	// Unsettled are the uncreated entries of which it is not certain that they have no object, with
	// the reason. Other uncreated entries that are to be removed are no longer in the inventory.
	Unsettled map[string]string
}

// Uncreated is true for an entry that was recorded before the create of its object, and whose
// object was never observed.
func Uncreated(e *appsv1.InventoryEntry) bool {
	return e.State == appsv1.EntryIntended && e.UID == ""
}

// Backoff is why an object is not to be written now: it was refused, a write failed, or another
// writer keeps changing it.
type Backoff struct {
	Message string
	// ContentHash is the hash of the content that failed. Other content is written. It is empty for
	// a failed removal.
	ContentHash string
}

// backoffMessage returns why content is not to be written now; empty when it may be. The content
// hash is empty for a removal.
func (s *Snapshot) backoffMessage(id, contentHash string) string {
	if b, ok := s.Backoffs[id]; ok && b.ContentHash == contentHash {
		return b.Message
	}
	return ""
}

// waitsForRetry turns an action into a wait or a refusal if its object is backed off, and returns
// true if it is.
func (s *Snapshot) waitsForRetry(a *Action, verb Verb) bool {
	contentHash := ""
	if a.Item != nil {
		contentHash = a.Item.ContentHash
	}
	message := s.backoffMessage(a.Entry.ID, contentHash)
	if message != "" {
		a.Verb, a.Reason, a.Message = verb, ReasonBackingOff, message
	}
	return message != ""
}

// isDeleting is true for an object whose deletion is in progress.
func (s *Snapshot) isDeleting(id string, l *live.Object) bool {
	return l.Deleting || s.PendingDeletions[id] == l.UID
}

// waitsForIndex turns an action into a wait if the index may not know every object of the kind, and
// returns true if it may not.
func (s *Snapshot) waitsForIndex(a *Action, ref stacks.Ref) bool {
	err := s.SyncErrors[ref.GroupKind()]
	if err != nil {
		a.Verb, a.Reason, a.Message = VerbWait, ReasonIndexNotSynced, ref.String()+": "+err.Error()
	}
	return err != nil
}
