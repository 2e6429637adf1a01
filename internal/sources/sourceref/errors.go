package sourceref

// Reason is the condition reason of an Error.
type Reason string

// Reasons.
const (
	// NotFound: the source does not exist.
	NotFound Reason = "SourceNotFound"
	// NotReady: the source has no artifact yet.
	NotReady Reason = "SourceNotReady"
	// NotServed: the cluster does not serve the kind of the source.
	NotServed Reason = "SourceKindNotServed"
	// AccessDenied: the source is in another namespace, and that is not allowed.
	AccessDenied Reason = "AccessDenied"
	// UnknownKind: the kind is not a kind of source.
	UnknownKind Reason = "UnknownSourceKind"
)

// Error means that a reference gives no artifact. Failed requests to the API server are not of this
// type, because they tell nothing about the source.
type Error struct {
	Reason  Reason
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Terminal reports whether only a change of the reference helps. The other errors end with an event
// of the source or of its CustomResourceDefinition.
func (e *Error) Terminal() bool { return e.Reason == AccessDenied || e.Reason == UnknownKind }
