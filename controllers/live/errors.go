package live

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SyncReason is why the index of a kind is not synced.
type SyncReason string

// Reasons of a SyncError.
const (
	// NotWatched means that no owner uses the kind; see Index.SetOwnerKinds.
	NotWatched SyncReason = "NotWatched"
	// Syncing means that the first list has not finished, or that it failed with Err.
	Syncing SyncReason = "Syncing"
	// Forbidden means that the controller lacks the permission to list, watch or get the kind.
	Forbidden SyncReason = "Forbidden"
	// NotServed means that the cluster does not serve the kind.
	NotServed SyncReason = "NotServed"
	// Stale means that the watch has been broken for longer than Options.StaleAfter, or
	// that the GET which has to confirm a deletion failed.
	Stale SyncReason = "Stale"
)

// SyncError reports that the index of a kind may be out of date. The index keeps retrying.
type SyncError struct {
	GroupKind schema.GroupKind
	Reason    SyncReason
	// Err is the last failure; nil if there was none.
	Err error
}

func (e *SyncError) Error() string {
	s := fmt.Sprintf("the index of %s is not synced: %s", e.GroupKind, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *SyncError) Unwrap() error { return e.Err }
