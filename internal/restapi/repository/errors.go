package repository

import (
	"fmt"

	"github.com/ksctl/gitops/internal/restapi/manifests"
)

// PreconditionError means that the document of an object is not the one that Change.IfMatch
// expects.
type PreconditionError struct {
	Key manifests.Key
	// Hash is that of the present document; empty without one.
	Hash string
}

// Error implements error.
func (e *PreconditionError) Error() string {
	if e.Hash == "" {
		return fmt.Sprintf("%s: the repository has no document of the object, which If-Match expects", e.Key)
	}
	return fmt.Sprintf("%s: the document of the object was changed: read it again, and use its ETag %s", e.Key, e.Hash)
}

// RefusedError means that the server accepts no push of the change: a hook or a protected branch
// rejects it, or the credentials do not allow it.
type RefusedError struct {
	Key manifests.Key
	// Err has the text of the server.
	Err error
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: the change was not pushed: %s", e.Key, e.Err)
}

// Unwrap returns the error of the push.
func (e *RefusedError) Unwrap() error { return e.Err }

// AttemptsError means that each push of a change was lost to another one, or failed. A later
// attempt may succeed.
type AttemptsError struct {
	Key      manifests.Key
	Attempts int
	// Err is that of the last attempt.
	Err error
}

// Error implements error.
func (e *AttemptsError) Error() string {
	return fmt.Sprintf("%s: the change could not be pushed in %d attempts; try again: %s", e.Key, e.Attempts, e.Err)
}

// Unwrap returns the error of the last attempt.
func (e *AttemptsError) Unwrap() error { return e.Err }
