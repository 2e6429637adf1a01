package verify

import (
	"fmt"
	"runtime/debug"
)

// Reason says why an artifact is not taken, fit to stand in a condition.
type Reason string

// Reasons. Beside them there are those of stacks/artifact/oci for a registry
// that signatures can't be read from.
const (
	// Unsigned is an artifact without any signature.
	Unsigned Reason = "SignatureMissing"
	// Untrusted is an artifact none of whose signatures is valid and by somebody
	// who is trusted.
	Untrusted Reason = "SignatureInvalid"
	// MaterialInvalid are keys, certificates, roots, policies or identities that
	// can't be used to verify anything.
	MaterialInvalid Reason = "VerificationMaterialInvalid"
)

// Error is an artifact that was not verified.
type Error struct {
	// Reason is what is wrong; decide by it.
	Reason Reason
	// Message says what was found, what was expected and what to do.
	Message string
}

// Error says what and why.
func (e *Error) Error() string { return e.Message }

// Terminal is true when only other keys, certificates or policies help. A
// signature can be pushed later.
func (e *Error) Terminal() bool { return e.Reason == MaterialInvalid }

func fail(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

// guard turns a panic over a signature into an error: it costs that artifact,
// not the process.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return f()
}

// PanicError is a panic over a signature.
type PanicError struct {
	Value any
	// Stack is for a log; the message does not hold it.
	Stack []byte
}

// Error names the panic.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %.200v", e.Value) }
