package live

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SyncReason says why the index can't vouch for a kind.
type SyncReason string

// Reasons of a SyncError.
const (
	// NotWatched: no owner uses the kind, see Index.Use.
	NotWatched SyncReason = "NotWatched"
	// Syncing: the first list is under way or failed; Err says how.
	Syncing SyncReason = "Syncing"
	// Forbidden: the controller may not list, watch or get the kind.
	Forbidden SyncReason = "Forbidden"
	// NotServed: the cluster does not serve the kind.
	NotServed SyncReason = "NotServed"
	// Stale: the watch has been broken for longer than Options.StaleAfter, or a
	// change that it told of can't be confirmed.
	Stale SyncReason = "Stale"
)

// SyncError says that what the index holds of a kind may not be how it is. The
// index goes on trying.
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
