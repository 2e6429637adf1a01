package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

func TestRetryDelay(t *testing.T) {
	cms, kind := schema.GroupResource{Resource: "configmaps"}, schema.GroupKind{Kind: "ConfigMap"}
	terminating := apierrors.NewForbidden(cms, "a", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	const interval = time.Minute
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"no response":               {io.ErrUnexpectedEOF, shortRetry},
		"deadline exceeded":         {context.DeadlineExceeded, shortRetry},
		"internal error":            {apierrors.NewInternalError(errors.New("x")), shortRetry},
		"unavailable webhook":       {apierrors.NewInternalError(errors.New("failed calling webhook")), shortRetry},
		"service unavailable":       {apierrors.NewServiceUnavailable("x"), shortRetry},
		"timeout":                   {apierrors.NewTimeoutError("x", 0), shortRetry},
		"timeout with Retry-After":  {apierrors.NewTimeoutError("x", 20), 20 * time.Second},
		"too many requests":         {apierrors.NewTooManyRequestsError("x"), shortRetry},
		"too many with Retry-After": {apierrors.NewTooManyRequests("x", 20), 20 * time.Second},
		"too many, retry after 1s":  {apierrors.NewTooManyRequests("x", 1), shortRetry},
		"too many, retry in a year": {apierrors.NewTooManyRequests("x", 1<<25), interval},
		"conflict":                  {apierrors.NewConflict(cms, "a", errors.New("x")), shortRetry},
		"terminating namespace":     {terminating, shortRetry},
		"object being deleted":      {&plan.BeingDeletedError{Ref: ref("a")}, shortRetry},
		"busy":                      {errBusy, shortRetry},
		"forbidden":                 {apierrors.NewForbidden(cms, "a", errors.New("x")), maxDeniedRetry},
		"over quota": {apierrors.NewForbidden(cms, "a", errors.New("exceeded quota: x")),
			maxDeniedRetry},
		"unauthorized":        {apierrors.NewUnauthorized("x"), interval},
		"invalid":             {apierrors.NewInvalid(kind, "a", nil), interval},
		"denied by a webhook": {apierrors.NewBadRequest("admission webhook denied the request"), interval},
		"not found":           {apierrors.NewNotFound(cms, "a"), interval},
		"too large":           {apierrors.NewRequestEntityTooLargeError("x"), interval},
		"immutable": {&ImmutableError{Ref: ref("a"), Err: apierrors.NewInvalid(kind, "a", nil)},
			interval},
		// A retry every five seconds would cost two requests each time.
		"owned by another": {&plan.OwnedByOtherError{Ref: ref("a"), By: "Helm"}, interval},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{tc.err, &ObjectError{Ref: ref("a"), Verb: "create", Err: tc.err},
				fmt.Errorf("more: %w", tc.err)} {
				if got := retryDelay(err, interval); got != tc.want {
					t.Errorf("%T: waits %s, want %s", err, got, tc.want)
				}
				if got := retryDelay(err, time.Second); got != time.Second {
					t.Errorf("%T: waits %s, longer than an interval of 1s", err, got)
				}
			}
			if isFatal(tc.err) {
				t.Error("fatal although writes of other objects may succeed")
			}
		})
	}
}

func TestIsFatal(t *testing.T) {
	for _, err := range []error{&WriteHookError{Err: errCrash}, context.Canceled, fmt.Errorf("x: %w", context.Canceled),
		&ObjectError{Ref: ref("a"), Err: &WriteHookError{Err: errCrash}}} {
		if !isFatal(err) {
			t.Errorf("%v does not end the pass", err)
		}
	}
	if err := error(&WriteHookError{Err: errCrash}); !errors.Is(err, errCrash) {
		t.Error("the error of the hook is not unwrapped")
	}
}

func TestBeingDeletedErrorListsFinalizers(t *testing.T) {
	for want, err := range map[string]error{
		"ConfigMap ns/a is being deleted": &plan.BeingDeletedError{Ref: ref("a")},
		"ConfigMap ns/a is being deleted: waits for finalizers [x.io/y z]": &plan.BeingDeletedError{Ref: ref("a"),
			Finalizers: []string{"x.io/y", "z"}},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
