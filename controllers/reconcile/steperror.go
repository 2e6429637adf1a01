package reconcile

import (
	"errors"
	"fmt"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// StepError is an error of a step. Its class determines the outcome of the reconcile; see
// OutcomeOf.
type StepError struct {
	// Reason is the reason of the conditions.
	Reason string
	Class  ErrorClass
	// For is what an error of WaitingClass waits for.
	For appsv1.WaitReference
	// Err is the cause.
	Err error
}

// ErrorClass tells what ends an error.
type ErrorClass int

// Classes of errors.
const (
	// TerminalClass: only a change by a user ends the error.
	TerminalClass ErrorClass = iota
	// TransientClass: a retry may end the error, and no event will.
	TransientClass
	// WaitingClass: an event will end the error, without a change by a user.
	WaitingClass
)

// NewTerminalError returns a StepError that a user has to fix.
func NewTerminalError(reason, format string, args ...any) error {
	return &StepError{Reason: reason, Class: TerminalClass, Err: fmt.Errorf(format, args...)}
}

// NewTransientError returns a StepError that a retry may end.
func NewTransientError(reason, format string, args ...any) error {
	return &StepError{Reason: reason, Class: TransientClass, Err: fmt.Errorf(format, args...)}
}

// NewWaitingError returns a StepError that an event will end: one of the object that is waited for.
func NewWaitingError(reason string, on appsv1.WaitReference, format string, args ...any) error {
	return &StepError{Reason: reason, Class: WaitingClass, For: on, Err: fmt.Errorf(format, args...)}
}

// Error implements error.
func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// FailureOutcome returns Stalled for a terminal error, which a user must fix, and Retry for
// another.
func FailureOutcome(err error, reason string, terminal bool, revision string) Outcome {
	if terminal {
		return Stalled{Err: err, Reason: reason, Revision: revision}
	}
	return Retry{Err: err, Reason: reason, Revision: revision}
}

// OutcomeOf returns the outcome of an error at a revision of the source: Stalled, Retry or Waiting
// by the class of a StepError, and Retry for any other error.
func OutcomeOf(err error, revision string) Outcome {
	var step *StepError
	if !errors.As(err, &step) {
		return Retry{Err: err, Revision: revision}
	}
	if step.Class == WaitingClass {
		return Waiting{On: err.Error(), For: []appsv1.WaitReference{step.For}, Reason: step.Reason, Revision: revision}
	}
	return FailureOutcome(err, step.Reason, step.Class == TerminalClass, revision)
}
