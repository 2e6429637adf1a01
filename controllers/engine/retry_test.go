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
)

func TestBackoff(t *testing.T) {
	cms, kind := schema.GroupResource{Resource: "configmaps"}, schema.GroupKind{Kind: "ConfigMap"}
	terminating := apierrors.NewForbidden(cms, "a", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	const interval = time.Minute
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"no answer":                  {io.ErrUnexpectedEOF, soon},
		"too slow an answer":         {context.DeadlineExceeded, soon},
		"a server's own fault":       {apierrors.NewInternalError(errors.New("x")), soon},
		"a webhook that is down":     {apierrors.NewInternalError(errors.New("failed calling webhook")), soon},
		"a server that is not there": {apierrors.NewServiceUnavailable("x"), soon},
		"a timeout":                  {apierrors.NewTimeoutError("x", 0), soon},
		"a timeout, and when":        {apierrors.NewTimeoutError("x", 20), 20 * time.Second},
		"too many":                   {apierrors.NewTooManyRequestsError("x"), soon},
		"too many, and when":         {apierrors.NewTooManyRequests("x", 20), 20 * time.Second},
		"too many, at once again":    {apierrors.NewTooManyRequests("x", 1), soon},
		"too many, for a year":       {apierrors.NewTooManyRequests("x", 1<<25), interval},
		"somebody was first":         {apierrors.NewConflict(cms, "a", errors.New("x")), soon},
		"a namespace that goes":      {terminating, soon},
		"an object that goes":        {&LeavingError{Ref: ref("a")}, soon},
		"busy":                       {errBusy, soon},
		"no right":                   {apierrors.NewForbidden(cms, "a", errors.New("x")), interval},
		"over quota":                 {apierrors.NewForbidden(cms, "a", errors.New("exceeded quota: x")), interval},
		"who are you":                {apierrors.NewUnauthorized("x"), interval},
		"invalid":                    {apierrors.NewInvalid(kind, "a", nil), interval},
		"a webhook's no":             {apierrors.NewBadRequest("admission webhook denied the request"), interval},
		"not found":                  {apierrors.NewNotFound(cms, "a"), interval},
		"too large":                  {apierrors.NewRequestEntityTooLargeError("x"), interval},
		"immutable":                  {&ImmutableError{Ref: ref("a"), Err: apierrors.NewInvalid(kind, "a", nil)}, interval},
		// Looked at every five seconds, it would cost two requests each time.
		"another's": {&OwnedError{Ref: ref("a"), By: "Helm"}, interval},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{tc.err, &ObjectError{Ref: ref("a"), Verb: "create", Err: tc.err}, fmt.Errorf("more: %w", tc.err)} {
				if got := retryDelay(err, interval); got != tc.want {
					t.Errorf("%T: waits %s, want %s", err, got, tc.want)
				}
				if got := retryDelay(err, time.Second); got != time.Second {
					t.Errorf("%T: waits %s, longer than an interval of 1s", err, got)
				}
			}
			if fatal(tc.err) {
				t.Error("others would fare better: it must not end the pass")
			}
		})
	}
}

func TestFatal(t *testing.T) {
	for _, err := range []error{&CrashError{Err: errCrash}, context.Canceled, fmt.Errorf("x: %w", context.Canceled),
		&ObjectError{Ref: ref("a"), Err: &CrashError{Err: errCrash}}} {
		if !fatal(err) {
			t.Errorf("%v must end the pass", err)
		}
	}
	if err := error(&CrashError{Err: errCrash}); !errors.Is(err, errCrash) {
		t.Error("a crash hides why")
	}
}

func TestLeavingError(t *testing.T) {
	for want, err := range map[string]error{
		"ConfigMap ns/a is being deleted":                                  &LeavingError{Ref: ref("a")},
		"ConfigMap ns/a is being deleted: waits for finalizers [x.io/y z]": &LeavingError{Ref: ref("a"), Finalizers: []string{"x.io/y", "z"}},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}
