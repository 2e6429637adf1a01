package live

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// Readiness of an object.
type Readiness uint8

// Readiness values.
const (
	// Unknown: the object can't be judged.
	Unknown Readiness = iota
	// InProgress: not there yet.
	InProgress
	// Current: as its spec says. A Job is Current when it is complete.
	Current
	// Failed: it will not get there without a change.
	Failed
	// Terminating: deleted, not gone.
	Terminating
)

var readinessNames = [...]string{"Unknown", "InProgress", "Current", "Failed", "Terminating"}

// String is the readiness as kstatus writes it.
func (r Readiness) String() string {
	if int(r) < len(readinessNames) {
		return readinessNames[r]
	}
	return fmt.Sprintf("Readiness(%d)", uint8(r))
}

// Object is what is known of one live object.
type Object struct {
	Ref stacks.Ref
	// Version of the API that the object was read with.
	Version         string
	UID             types.UID
	ResourceVersion string
	// Mark that the object carries; zero if it has none that can be read.
	Mark Mark
	// Owned is a hash of the fields that FieldManager owns through apply, with
	// their values; see Drifted. No value of a Secret is in it but keyed.
	Owned string
	// Kept are the ignored fields, and /spec/replicas once the scale subresource
	// wrote it.
	Kept  []KeptField
	Ready Readiness
	// Message explains Ready in at most 256 bytes.
	Message string
	// Done is true when a Job or a Pod ran to its end, well or not; Succeeded
	// when well, also while it is being deleted.
	Done       bool
	Succeeded  bool
	Deleting   bool
	Finalizers []string
	// DeletionTimestamp is zero unless Deleting.
	DeletionTimestamp time.Time
	// HeldBy is the field manager that set the finalizers of an object that is
	// being deleted; empty when nobody is known to have.
	HeldBy string
	// Remains is what a namespace that is being deleted says is left in it, in at most
	// 256 bytes.
	Remains string
	// Suspended is true for a Job that is not to run yet.
	Suspended bool
	// Protected is true when a person forbade its deletion.
	Protected bool
	// OtherManager is the field manager, other than ours, that wrote last, not
	// counting writes of status. It is for messages.
	OtherManager string
	// Adopted is true when the object says that it was there before us.
	Adopted bool
	// Claimed is true when another manager has put the mark of a tool on the object
	// that deletes what carries it; see ToolMarks.
	Claimed bool
	// LabelLost is true when the object no longer has the label that selects it.
	// It is not watched: Index.Observe is how the index learns of it. Only
	// objects of an Index have it.
	LabelLost bool
}

// KeptField is a field of the live object that an apply must not change.
type KeptField struct {
	// Path is a JSON pointer.
	Path string
	// Value is the live value; nil when the field is absent, or withheld.
	Value json.RawMessage
	// Withheld is true when the value is of a Secret or longer than 1 KiB, and
	// has to be read from the cluster if it is needed.
	Withheld bool
	// Ours is true when the field is there to be sent again as it is: FieldManager
	// owns it, or a part of it, through apply, or it is inside a list or map that
	// has one owner as a whole, out of which it can't be left.
	Ours bool
	// Others is true when another manager owns the field, or a part of it, so
	// that it can be left to them.
	Others bool
}
