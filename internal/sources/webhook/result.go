package webhook

// result is the result of a request.
type result string

const (
	// accepted: a reconcile of the source is requested.
	accepted result = "accepted"
	// coalesced: a reconcile will be requested later, once for all pushes until then.
	coalesced result = "coalesced"
	// duplicate: the same request was received within dedupWindow.
	duplicate result = "duplicate"
	// ignored: the request is not a push, or the push does not affect the source.
	ignored result = "ignored"
	// rejected: there is no source at the path, or the sender does not know its token.
	rejected result = "rejected"
	// invalid: the sender knows the token, but the body is not a valid push.
	invalid result = "invalid"
	// tooLarge, incomplete, busy: the body was not parsed.
	tooLarge   result = "too_large"
	incomplete result = "incomplete"
	busy       result = "busy"
	// failed: a request to the API server failed.
	failed result = "failed"
)
