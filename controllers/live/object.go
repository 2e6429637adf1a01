package live

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// Readiness is the state of an object, in the terms of kstatus.
type Readiness uint8

// Readiness values.
const (
	// Unknown means that the readiness could not be determined.
	Unknown Readiness = iota
	// InProgress means that the object has not reached the state of its spec yet.
	InProgress
	// Current means that the object matches its spec. A Job is Current when it is complete.
	Current
	// Failed means that the object will not become Current without a change.
	Failed
	// Terminating means that the object has a deletion timestamp and still exists.
	Terminating
)

var readinessNames = [...]string{"Unknown", "InProgress", "Current", "Failed", "Terminating"}

// String returns the kstatus name of the readiness.
func (r Readiness) String() string {
	if int(r) < len(readinessNames) {
		return readinessNames[r]
	}
	return fmt.Sprintf("Readiness(%d)", uint8(r))
}

// Object is the projection of one live object.
type Object struct {
	Ref stacks.Ref
	// Version is the API version in which the object was read.
	Version         string
	UID             types.UID
	ResourceVersion string
	// Mark is the parsed MarkAnnotation; zero if the annotation is absent or invalid.
	Mark Mark
	// OwnedHash is a hash of the fields that FieldManager owns through apply, with
	// their values; see Drifted. Values of Secrets enter the hash only through an HMAC.
	OwnedHash string
	// KeptFields are the ignored fields, and /spec/replicas once it was written through
	// the scale subresource.
	KeptFields []KeptField
	Readiness  Readiness
	// Message explains Readiness in at most 256 bytes.
	Message string
	// Finished is true when a Job or a Pod completed or failed. Succeeded is true when it
	// completed successfully, also while it is being deleted.
	Finished  bool
	Succeeded bool
	// Result is the JSON value of the ResultAnnotation of a Job; nil without one. ResultRecorded is
	// true if the Job has the annotation, also if that is empty or invalid.
	Result         json.RawMessage
	ResultRecorded bool
	Deleting       bool
	Finalizers     []string
	// DeletionTimestamp is zero unless Deleting.
	DeletionTimestamp time.Time
	// FinalizerManager is the field manager that set the finalizers of an object that is
	// being deleted; empty if managedFields do not record one.
	FinalizerManager string
	// DeletionMessage is the NamespaceDeletionMessage of a namespace that is being deleted, cut
	// to at most 256 bytes.
	DeletionMessage string
	// Suspended is true for a Job with spec.suspend.
	Suspended bool
	// Protected is true when PreventDeletionAnnotation is "true".
	Protected bool
	// KeptByHelm is true when HelmPolicyAnnotation is "keep": the object is released instead of
	// deleted.
	KeptByHelm bool
	// KeptWhenPruned and KeptWhenDeleted are true when annotations release the object instead, see
	// stacks.ObjectPolicy.
	KeptWhenPruned, KeptWhenDeleted bool
	// OtherManager is the field manager, other than FieldManager, of the latest write;
	// writes of the status and contributions do not count. It is for messages.
	OtherManager string
	// Adopted is true when the object has AdoptedAnnotation: it existed before it was managed.
	Adopted bool
	// TrackedByTool is true when another manager set a tracking label or annotation of a tool
	// that deletes objects which carry it; see TrackingFields.
	TrackedByTool bool
	// Serves is what a CustomResourceDefinition serves; nil for other kinds.
	Serves *stacks.ServedKind
	// Reported are the fields that ReportAnnotation names, as a JSON object of at most 4 KiB.
	Reported json.RawMessage
	// LabelLost is true when the object no longer has OwnerLabel with the id of the
	// installation. The watch does not select such an object: the index learns of it from
	// Index.Observe or from a GET. Only objects from an Index have the field set.
	LabelLost bool
}

// KeptField is a field of the live object that an apply must not change.
type KeptField struct {
	// Path is the ignored path of the rule.
	Path string
	// At is the JSON pointer of the field if Path does not name exactly one. It finds the field
	// in another version of the object, too: see FindItem. The token - is an item that the object
	// does not have.
	At string
	// Value is the live value; nil when the field is absent or Withheld.
	Value json.RawMessage
	// Withheld is true when the value is not in the index, because the object is a Secret or
	// the value is longer than 1 KiB. A caller that needs the value reads it from the cluster.
	Withheld bool
	// Ours is true when the apply has to send the live value: FieldManager owns the field, or
	// a part of it, through apply; or the field is inside an atomic list or map, from which
	// it can't be omitted.
	Ours bool
	// Others is true when another manager owns the field, or a part of it, so that the apply
	// can omit it.
	Others bool
}
