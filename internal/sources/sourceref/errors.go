package sourceref

// Reason says why a source gives no artifact, fit to stand in a condition.
type Reason string

// Reasons.
const (
	// NotFound is a source that does not exist.
	NotFound Reason = "SourceNotFound"
	// NotReady is a source that has no artifact yet.
	NotReady Reason = "SourceNotReady"
	// NotServed is a kind of source that the cluster does not serve.
	NotServed Reason = "SourceKindNotServed"
	// AccessDenied is a source in another namespace, which is not allowed.
	AccessDenied Reason = "AccessDenied"
	// UnknownKind is a kind that is no source.
	UnknownKind Reason = "UnknownSourceKind"
)

// Error says why a source gives no artifact. Failures to talk to the API
// server are not of this type: they mean nothing for the source.
type Error struct {
	Reason  Reason
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Terminal is true when only a change of the reference helps. Everything else
// ends with an event of the source or of its CustomResourceDefinition.
func (e *Error) Terminal() bool { return e.Reason == AccessDenied || e.Reason == UnknownKind }
