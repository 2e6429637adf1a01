package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

// shortRetry is the delay before the retry of a transient error.
const shortRetry = 5 * time.Second

// errBusy is the error of an object that changed during every attempt.
var errBusy = errors.New("the object changed during every attempt")

// WriteHookError is returned by a pass that an error of the WriteHook ended.
type WriteHookError struct{ Err error }

func (e *WriteHookError) Error() string { return "write hook: " + e.Err.Error() }

// Unwrap returns the error of the hook.
func (e *WriteHookError) Unwrap() error { return e.Err }

// isFatal is true for errors that end the pass, because all further writes would fail, too.
func isFatal(err error) bool {
	var hookErr *WriteHookError
	return errors.As(err, &hookErr) || errors.Is(err, context.Canceled)
}

// retryDelay returns the delay before the retry of an error, at most the retry interval of the
// owner.
func retryDelay(err error, interval time.Duration) time.Duration {
	short := min(shortRetry, interval)
	var deleting *plan.BeingDeletedError
	var owned *plan.OwnedByOtherError
	var invalid *plan.InvalidObjectError
	var different *DifferentError
	switch {
	case errors.As(err, &owned), errors.As(err, &invalid), errors.As(err, &different):
		return interval // no event tells when another owner releases or changes it, or when it is accepted
	case errors.As(err, &deleting), errors.Is(err, errBusy),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return short
	}
	if s, ok := apierrors.SuggestsClientDelay(err); ok {
		return min(max(short, time.Duration(s)*time.Second), interval)
	}
	switch {
	case isTransient(err):
		return short
	case isDenied(err):
		return min(maxDeniedRetry, interval)
	}
	return interval
}

// maxDeniedRetry is the maximum delay before the retry of a request that lacked a permission or a
// namespace: in other clusters, and with other authorizers, no event tells when it is there.
const maxDeniedRetry = 30 * time.Second

// isDenied is true for errors of a missing permission or namespace.
func isDenied(err error) bool {
	if apierrors.IsForbidden(err) {
		return true
	}
	details := errorDetails(err)
	return details != nil && details.Kind == "namespaces" && apierrors.IsNotFound(err)
}

// DeniedNamespaces returns the namespaces of the objects whose requests failed because a permission
// or the namespace was missing, without duplicates. The namespace of a cluster-scoped object is
// empty.
func DeniedNamespaces(errs []error) (namespaces []string) {
	for _, err := range errs {
		object, ok := errors.AsType[*ObjectError](err)
		if ok && isDenied(err) && !slices.Contains(namespaces, object.Ref.Namespace) {
			namespaces = append(namespaces, object.Ref.Namespace)
		}
	}
	return namespaces
}

// RetryDenied drops the back-offs of an owner for a missing permission or namespace.
func (e *Engine) RetryDenied(key plan.OwnerKey) {
	e.backoffs.deleteFunc(key.String(), func(_ string, b backoff) bool { return isDenied(b.err) })
}

// isTransient is true for errors that say nothing about the request itself: a retry may succeed.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500 || apierrors.IsTooManyRequests(err) ||
		apierrors.IsConflict(err)
}
