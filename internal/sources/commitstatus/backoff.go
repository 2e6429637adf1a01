package commitstatus

import (
	"errors"
	"time"

	"golang.org/x/time/rate"
)

const (
	// Each source has so many statements written at once, then one a second:
	// https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#pause-between-mutative-requests
	burst = 20
	every = time.Second
	// What failed is tried again after first, twice that and so on, up to longest.
	first   = 10 * time.Second
	longest = 30 * time.Minute
	// patience is how many times in a row a server may fail, or put us off, before people are told, and
	// tellAgain when they are told again of what lasts: the API server keeps events
	// for an hour.
	patience  = 3
	tellAgain = 30 * time.Minute
)

// Gate says when the server of one source may be talked to, and of what people are told.
type Gate struct {
	limit    *rate.Limiter
	until    time.Time
	failures int

	told   Result
	toldAt time.Time
}

// Wait is how long nothing may be sent; 0 for not at all: then it counts as sent.
func (g *Gate) Wait(now time.Time) time.Duration {
	if d := g.until.Sub(now); d > 0 {
		return d
	}
	if g.limit == nil {
		g.limit = rate.NewLimiter(rate.Every(every), burst)
	}
	r := g.limit.ReserveN(now, 1)
	if d := r.DelayFrom(now); d > 0 {
		r.CancelAt(now)
		return d
	}
	return 0
}

// Open forgets what failed: something was changed that may mend it.
func (g *Gate) Open() { g.until, g.failures, g.told, g.toldAt = time.Time{}, 0, "", time.Time{} }

// Ended takes note of how a try ended. It gives what became of it, and true if people
// are to be told.
func (g *Gate) Ended(err error, now time.Time) (Result, bool) {
	if err == nil {
		g.Open()
		return Written, false
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Result: Refused}
	}
	if e.Result == Invalid { // of one statement
		return Invalid, true
	}
	g.failures++
	g.until = now.Add(max(e.After, min(first<<min(g.failures-1, 10), longest)))
	switch {
	case (e.Result == Limited || e.Result == Failed) && g.failures < patience, g.told == e.Result && now.Sub(g.toldAt) < tellAgain:
		return e.Result, false
	}
	g.told, g.toldAt = e.Result, now
	return e.Result, true
}
