package commitstatus

import (
	"errors"
	"time"

	"golang.org/x/time/rate"
)

const (
	// Each source can post burst statuses at once, then one per minInterval:
	// https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#pause-between-mutative-requests
	burst       = 20
	minInterval = time.Second
	// A failure is retried after minBackoff, twice that and so on, up to maxBackoff.
	minBackoff = 10 * time.Second
	maxBackoff = 30 * time.Minute
	// reportAfter is the number of consecutive failures or rate limits of a server before users get
	// an event. reportInterval is the interval of events about a lasting failure: the API server
	// keeps events for an hour.
	reportAfter    = 3
	reportInterval = 30 * time.Minute
)

// Backoff decides when requests may be sent to the server of one source, and which failures are
// reported to users.
type Backoff struct {
	limiter  *rate.Limiter
	retryAt  time.Time
	failures int

	reported   Result
	reportedAt time.Time
}

// Wait returns the delay before the next request. If it is 0, the request counts as sent.
func (g *Backoff) Wait(now time.Time) time.Duration {
	if d := g.retryAt.Sub(now); d > 0 {
		return d
	}
	if g.limiter == nil {
		g.limiter = rate.NewLimiter(rate.Every(minInterval), burst)
	}
	r := g.limiter.ReserveN(now, 1)
	if d := r.DelayFrom(now); d > 0 {
		r.CancelAt(now)
		return d
	}
	return 0
}

// Reset clears the failures, because a change may have fixed their cause.
func (g *Backoff) Reset() {
	g.retryAt, g.failures, g.reported, g.reportedAt = time.Time{}, 0, "", time.Time{}
}

// Record records the end of a request. It returns the result, and true if the failure is to be
// reported to users.
func (g *Backoff) Record(err error, now time.Time) (Result, bool) {
	if err == nil {
		g.Reset()
		return Written, false
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Result: Refused}
	}
	if e.Result == Invalid { // concerns one status, not the server
		return Invalid, true
	}
	g.failures++
	g.retryAt = now.Add(max(e.RetryAfter, min(minBackoff<<min(g.failures-1, 10), maxBackoff)))
	switch {
	case (e.Result == Limited || e.Result == Failed) && g.failures < reportAfter, g.reported == e.Result &&
		now.Sub(g.reportedAt) < reportInterval:
		return e.Result, false
	}
	g.reported, g.reportedAt = e.Result, now
	return e.Result, true
}
