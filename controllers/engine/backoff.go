package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ksctl/gitops/controllers/engine/plan"
)

// backoff is the reason why an object is skipped until its retry.
type backoff struct {
	// start and retryAt bound it. If the clock was set back, retryAt may be years away.
	start, retryAt time.Time
	err            error
	// contentHash is the hash of the content that failed: other content is tried at once.
	contentHash string
}

func (b backoff) expired(now time.Time) bool {
	return !now.Before(b.retryAt) || clockSetBack(now, b.start)
}

// clockSetBack is true when the clock shows a time long before an earlier reading. A pass reads the
// clock once, so a little before is normal.
func clockSetBack(now, earlier time.Time) bool { return now.Before(earlier.Add(-correctionWindow)) }

// backoffs tracks, per owner, the objects whose last write failed and the time of their next
// attempt. Losing it costs a request, never correctness.
type backoffs struct {
	mu      sync.Mutex
	byOwner map[string]map[string]backoff
}

func newBackoffs() *backoffs { return &backoffs{byOwner: map[string]map[string]backoff{}} }

func (s *backoffs) record(owner, id string, b backoff) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byOwner[owner] == nil {
		s.byOwner[owner] = map[string]backoff{}
	}
	s.byOwner[owner][id] = b
}

// active returns the back-offs of an owner that have not expired. It only reads: the preview of a
// removal calls it, too, for an install that is not its own.
func (s *backoffs) active(owner string, now time.Time) map[string]plan.Backoff {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]plan.Backoff{}
	for id, b := range s.byOwner[owner] {
		if !b.expired(now) {
			out[id] = plan.Backoff{Message: b.err.Error(), ContentHash: b.contentHash}
		}
	}
	return out
}

// prune drops the back-offs of an owner that have expired, or failed with other content than is
// desired now: a back-off that new content ended does not return with the old content. desired has
// the content hash of each desired object by id; an object that is to be deleted has none.
func (s *backoffs) prune(owner string, desired map[string]string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.byOwner[owner], func(id string, b backoff) bool { return b.expired(now) || b.contentHash != desired[id] })
}

// nextRetry returns when the first back-off of an owner ends (zero when there is none), and the
// errors that are backed off, in the order of their objects.
func (s *backoffs) nextRetry(owner string, now time.Time) (time.Time, []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(s.byOwner[owner])) {
		b := s.byOwner[owner][id]
		if b.expired(now) {
			continue
		}
		if first.IsZero() || b.retryAt.Before(first) {
			first = b.retryAt
		}
		errs = append(errs, b.err)
	}
	return first, errs
}

// reset drops the back-off of one object.
func (s *backoffs) reset(owner, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byOwner[owner], id)
}

// resetAll drops every back-off of an owner.
func (s *backoffs) resetAll(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byOwner, owner)
}
