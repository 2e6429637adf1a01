package webhook

// result is what became of a request.
type result string

const (
	// accepted: the source is being looked at.
	accepted result = "accepted"
	// gathered: it will be, together with what else comes until then.
	gathered result = "gathered"
	// seen: the same request came a moment ago.
	seen result = "seen"
	// ignored: nothing that the source takes was pushed.
	ignored result = "ignored"
	// refused: there is no source at the path, or the sender does not know its token.
	refused result = "refused"
	// invalid: the sender knows the token, and the body can't be read.
	invalid result = "invalid"
	// tooLarge, unread and busy: it was not looked into; failed: the API server does
	// not answer, or does not take it.
	tooLarge result = "too_large"
	unread   result = "unread"
	busy     result = "busy"
	failed   result = "failed"
)
