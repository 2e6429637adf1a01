package verify

import "fmt"

// Reason is the cause of an Error, and can be the reason of a condition.
type Reason string

// Reasons. If signatures can't be read from the registry, the error is an *oci.Error with
// one of the reasons of that package instead.
const (
	// Unsigned: the artifact has no signature.
	Unsigned Reason = "SignatureMissing"
	// Untrusted: no signature of the artifact is both valid and by a trusted signer.
	Untrusted Reason = "SignatureInvalid"
	// MaterialInvalid: the keys, certificates, roots, policies or identities can't be used
	// to verify anything.
	MaterialInvalid Reason = "VerificationMaterialInvalid"
)

// Error reports an artifact that could not be verified.
type Error struct {
	// Reason is the cause. Callers decide by it, not by the message.
	Reason Reason
	// Message describes what was found, what was expected and what to do.
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Terminal is true if only other keys, certificates or policies can resolve the error. It is
// false for signatures, because a signature can be pushed later.
func (e *Error) Terminal() bool { return e.Reason == MaterialInvalid }

func newError(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

// recoverPanic calls f and returns a panic as an error, so that an invalid signature affects
// one artifact and not the process.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %.200v", p)
		}
	}()
	return f()
}
