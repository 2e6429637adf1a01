package engine

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// soon is how long a fault is waited out that passes by itself.
const soon = 5 * time.Second

// errBusy says that an object changed under each of our looks at it.
var errBusy = errors.New("it changes as fast as it is read")

// CrashError ends a pass at a write boundary.
type CrashError struct{ Err error }

func (e *CrashError) Error() string { return "stopped at a write: " + e.Err.Error() }

// Unwrap returns what the boundary said.
func (e *CrashError) Unwrap() error { return e.Err }

// fatal errors end the pass: nothing that follows would fare better.
func fatal(err error) bool {
	var crash *CrashError
	return errors.As(err, &crash) || errors.Is(err, context.Canceled)
}

// retryDelay is how long a failure is waited out, given the owner's retry interval.
func retryDelay(err error, interval time.Duration) time.Duration {
	short := min(soon, interval)
	var leaving *LeavingError
	var owned *OwnedError
	switch {
	case errors.As(err, &owned):
		return interval // nothing tells when its owner gives it up
	case errors.As(err, &leaving), errors.Is(err, errBusy):
		return short
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return short
	}
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		return min(max(short, time.Duration(s)*time.Second), interval)
	}
	if passing(err) {
		return short
	}
	return interval
}

// passing errors are no answer to what was asked: another try may get one.
func passing(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500 || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err)
}
