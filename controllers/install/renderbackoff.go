package install

import (
	"errors"
	"fmt"
	"time"

	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/internal/sources/content"
	"github.com/ksctl/gitops/stacks"
)

// setback is a render that was stopped. It is tried again later and later, and not
// by every event in between: others want to render, too.
type setback struct {
	digest string
	// times that it was stopped in a row, and when it may be tried again.
	times int
	until time.Time
	err   *stacks.StoppedError
}

// stoppedError is that of a render that was stopped, and is not tried before a time.
type stoppedError struct {
	times int
	until time.Time
	err   *stacks.StoppedError
}

func (e *stoppedError) Error() string {
	if e.times == 1 {
		return e.err.Error()
	}
	return fmt.Sprintf("%v; that was try %d, and more time lies between each", e.err, e.times)
}

// Unwrap gives what stopped it.
func (e *stoppedError) Unwrap() error { return e.err }

// holds is the error of a render that it is too early to try again.
func (s *setback) holds(digest string, now time.Time) error {
	if s.digest != digest || !now.Before(s.until) {
		return nil
	}
	return s.error()
}

func (s *setback) error() error { return &stoppedError{times: s.times, until: s.until, err: s.err} }

// maxSetback is the longest time between two tries, unless the install's
// retryInterval is longer.
const maxSetback = time.Hour

// after remembers how a render ended, and returns its error.
func (s *setback) after(err error, digest string, retry time.Duration, now time.Time) error {
	stopped, ok := errors.AsType[*stacks.StoppedError](err)
	if !ok {
		*s = setback{}
		return err
	}
	if s.digest != digest {
		*s = setback{digest: digest}
	}
	s.times++
	s.err = stopped
	wait := retry
	for i := 1; i < s.times && wait < maxSetback; i++ {
		wait *= 2
	}
	s.until = now.Add(max(retry, min(wait, maxSetback)))
	return s.error()
}

// renderOutcome tells what a person must mend from what another try may.
func renderOutcome(err error, revision string, now time.Time) reconcile.Outcome {
	var (
		changed *ChartChangedError
		stopped *stoppedError
		values  *ValuesError
		cluster *ClusterValueError
		lost    *target.UnreachableError
	)
	switch {
	case errors.As(err, &lost): // what it serves is asked of the cluster
		return target.Outcome(lost, revision)
	case errors.As(err, &changed):
		return reconcile.Stalled{Err: err, Reason: ChartChangedReason, Revision: revision}
	case errors.As(err, &stopped):
		return reconcile.Retry{Err: err, Reason: content.RenderStoppedReason, Revision: revision, After: max(stopped.until.Sub(now), time.Millisecond)}
	case errors.As(err, &cluster):
		return reconcile.Stalled{Err: err, Reason: ClusterValuesReason, Revision: revision}
	case errors.As(err, &values):
		return reconcile.Retry{Err: err, Reason: ValuesNotFoundReason, Revision: revision}
	}
	return content.RenderOutcome(err, revision)
}
