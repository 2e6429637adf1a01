package engine

import (
	"maps"
	"slices"
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

// backoffs has the objects whose last write failed, with the time of their next attempt.
type backoffs struct{ ownerMap[backoff] }

// active returns the back-offs of an owner that have not expired. It only reads: the preview of a
// removal calls it, too, for an install that is not its own.
func (s *backoffs) active(owner string, now time.Time) map[string]plan.Backoff {
	out := map[string]plan.Backoff{}
	for id, b := range s.all(owner) {
		if !b.expired(now) {
			out[id] = plan.Backoff{Message: b.err.Error(), ContentHash: b.contentHash}
		}
	}
	return out
}

// prune drops the back-offs of an owner that have expired, or failed with other content than is
// desired now: a back-off that new content ended does not return with the old content. desired has
// the content hashes of each desired object by id; an object that is to be deleted has none.
func (s *backoffs) prune(owner string, desired map[string][2]string, now time.Time) {
	s.deleteFunc(owner, func(id string, b backoff) bool {
		hashes := desired[id]
		return b.expired(now) || b.contentHash != hashes[0] && (hashes[1] == "" || b.contentHash != hashes[1])
	})
}

// nextRetry returns when the first back-off of an owner ends (zero when there is none), and the
// errors that are backed off, in the order of their objects. Those of tests are not returned.
func (s *backoffs) nextRetry(owner string, now time.Time, tests map[string]bool) (time.Time, []error) {
	var first time.Time
	var errs []error
	all := s.all(owner)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		b := all[id]
		if b.expired(now) {
			continue
		}
		if first.IsZero() || b.retryAt.Before(first) {
			first = b.retryAt
		}
		if !tests[id] {
			errs = append(errs, b.err)
		}
	}
	return first, errs
}
