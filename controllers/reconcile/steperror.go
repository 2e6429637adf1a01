package reconcile

import (
	"errors"
	"fmt"
)

// StepError is why a kind has no next step. It carries what becomes of that.
type StepError struct {
	// Reason of the conditions.
	Reason string
	// Err is the cause.
	Err error
	// Waits is true when an event will tell more, and nobody has to mend anything; Again when it
	// may be mended without an event.
	Waits, Again bool
}

// Fail is a StepError that somebody has to mend.
func Fail(reason, format string, args ...any) error {
	return &StepError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Wait is a StepError that an event will end.
func Wait(reason, format string, args ...any) error {
	return &StepError{Reason: reason, Err: fmt.Errorf(format, args...), Waits: true}
}

// TryAgain is a StepError that may be mended without an event.
func TryAgain(reason, format string, args ...any) error {
	return &StepError{Reason: reason, Err: fmt.Errorf(format, args...), Again: true}
}

// Error implements error.
func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Failed is the outcome of an error: of a StepError what it carries, and another try of any other.
func Failed(err error) Outcome {
	var step *StepError
	switch {
	case !errors.As(err, &step):
		return Retry{Err: err}
	case step.Waits:
		return Waiting{On: err.Error(), Reason: step.Reason}
	case step.Again:
		return Retry{Err: err, Reason: step.Reason}
	}
	return Stalled{Err: err, Reason: step.Reason}
}
