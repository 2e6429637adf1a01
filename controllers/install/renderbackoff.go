package install

import (
	"errors"
	"fmt"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
)

// renderBackoff delays the retries of a render that was stopped because it exceeded a limit. The
// delay doubles with each attempt, and events do not shorten it, because renders share the
// resources of the controller.
type renderBackoff struct {
	digest string
	last   renderStoppedError
}

// renderStoppedError is the error of a stopped render.
type renderStoppedError struct {
	// attempts is the number of consecutive stopped attempts. retryAt is the time of the next
	// attempt.
	attempts int
	retryAt  time.Time
	err      *stacks.StoppedError
}

func (e *renderStoppedError) Error() string {
	if e.attempts == 1 {
		return e.err.Error()
	}
	return fmt.Sprintf("%v (attempt %d, with increasing delays)", e.err, e.attempts)
}

// Unwrap returns the cause.
func (e *renderStoppedError) Unwrap() error { return e.err }

// check returns the last error of a render if it is too early to retry it, and nil otherwise.
func (s *renderBackoff) check(digest string, now time.Time) error {
	if s.digest != digest || !now.Before(s.last.retryAt) {
		return nil
	}
	return s.error()
}

func (s *renderBackoff) error() error {
	last := s.last
	return &last
}

// maxRenderBackoff is the maximum delay between two attempts, unless the install's retryInterval is
// longer.
const maxRenderBackoff = time.Hour

// record records the result of a render, and returns its error. Any result but a StoppedError of
// the same digest resets the backoff.
func (s *renderBackoff) record(err error, digest string, retry time.Duration, now time.Time) error {
	stopped, ok := errors.AsType[*stacks.StoppedError](err)
	if !ok {
		*s = renderBackoff{}
		return err
	}
	if s.digest != digest {
		*s = renderBackoff{digest: digest}
	}
	s.last.attempts++
	s.last.err = stopped
	wait := retry
	for i := 1; i < s.last.attempts && wait < maxRenderBackoff; i++ {
		wait *= 2
	}
	s.last.retryAt = now.Add(max(retry, min(wait, maxRenderBackoff)))
	return s.error()
}

// renderOutcome maps a render error to an outcome: Retry if another attempt may succeed, Stalled if
// a user must change something.
func renderOutcome(err error, revision string, now time.Time) reconcile.Outcome {
	var (
		stopped     *renderStoppedError
		unreachable *target.UnreachableError
	)
	switch {
	case errors.As(err, &unreachable): // a render needs the capabilities of the cluster
		return target.Outcome(unreachable, revision)
	case errors.As(err, &stopped):
		return reconcile.Retry{Err: err, Reason: appsv1.RenderStoppedReason, Revision: revision,
			RequeueAfter: max(stopped.retryAt.Sub(now), time.Millisecond)}
	}
	return content.RenderOutcome(err, revision)
}
