package reconcile

import (
	"errors"
	"fmt"
)

// StepError is an error of a step. It determines the outcome of the reconcile; see OutcomeOf.
type StepError struct {
	// Reason is the reason of the conditions.
	Reason string
	// Err is the cause.
	Err error
	// Waits is true if an event will resolve the error without any fix by a user. Again is true
	// if a retry without an event may succeed. With neither, the object is stalled.
	Waits, Again bool
}

// Fail returns a StepError that somebody has to fix: the outcome is Stalled.
func Fail(reason, format string, args ...any) error {
	return &StepError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Wait returns a StepError that an event will resolve: the outcome is Waiting.
func Wait(reason, format string, args ...any) error {
	return &StepError{Reason: reason, Err: fmt.Errorf(format, args...), Waits: true}
}

// TryAgain returns a StepError that a retry may resolve without an event: the outcome is Retry.
func TryAgain(reason, format string, args ...any) error {
	return &StepError{Reason: reason, Err: fmt.Errorf(format, args...), Again: true}
}

// Error implements error.
func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// OutcomeOf returns the outcome of an error: Stalled, Waiting or Retry for a StepError, and Retry
// for any other error.
func OutcomeOf(err error) Outcome {
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
