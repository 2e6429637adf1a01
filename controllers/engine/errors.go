package engine

import (
	"fmt"

	"github.com/ksctl/gitops/stacks"
)

// ImmutableError is returned when a change needs the object to be recreated, and that is not
// allowed.
type ImmutableError struct {
	Ref stacks.Ref
	// Adopted is true for an object that existed before it was adopted.
	Adopted bool
	// KeepReason is the reason why the object must not be deleted; empty when spec.force would
	// allow it.
	KeepReason string
	// Err is the error of the API server.
	Err error
}

func (e *ImmutableError) Error() string {
	hint := "set spec.force to recreate it"
	switch {
	case e.Adopted:
		hint = "it existed before and is not recreated: delete it, or revert the change"
	case e.KeepReason != "":
		hint = e.KeepReason + ", so it is not recreated: remove that protection, or revert the change"
	}
	return fmt.Sprintf("%s cannot be changed in place (%s): %s", e.Ref, hint, redactedMessage(e.Ref, e.Err))
}

// Unwrap returns the error of the API server.
func (e *ImmutableError) Unwrap() error { return e.Err }

// ObjectError wraps the error of a request with its verb and object.
type ObjectError struct {
	Ref  stacks.Ref
	Verb string
	Err  error
	// Redact is that of the owner's policies.
	Redact func(message string) string
}

func (e *ObjectError) Error() string {
	message := redactedMessage(e.Ref, e.Err)
	if e.Redact != nil {
		message = e.Redact(message)
	}
	return fmt.Sprintf("%s %s: %s", e.Verb, e.Ref, message)
}

// Unwrap returns the cause.
func (e *ObjectError) Unwrap() error { return e.Err }
