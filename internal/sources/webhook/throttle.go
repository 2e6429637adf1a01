package webhook

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Limits for senders that know a token.
const (
	// burst is how many pushes of a source are handed on at once after a quiet time; further ones
	// are handed on at minInterval.
	burst       = 20
	minInterval = 3 * time.Second
	// maxRemembered is how many requests of a source are remembered to detect duplicates, and
	// dedupWindow for how long. It is short, so that a push back to an earlier commit and a manual
	// redelivery count.
	maxRemembered = 256
	dedupWindow   = time.Minute
	// maxSources bounds the memory: the state of the least recently pushed sources is evicted.
	maxSources = 10_000
)

// throttle drops duplicate requests, and bounds the rate at which reconciles are requested for a
// source by coalescing pushes.
type throttle struct {
	clock clock.Clock
	// ctx ends the delayed reconcile requests, waiting counts them.
	ctx     context.Context
	waiting sync.WaitGroup
	states  *lru.Cache // *sourceState by types.UID
	mu      sync.Mutex // guards the creation of a state
}

// sourceState is the state of one source.
type sourceState struct {
	limiter *rate.Limiter
	mu      sync.Mutex
	seen    *lru.Cache // time.Time by delivery ID
	// pending is true while a delayed reconcile request is pending. It covers all pushes until it
	// is sent.
	pending bool
}

func newThrottle(ctx context.Context, c clock.Clock) *throttle {
	return &throttle{clock: c, ctx: ctx, states: lru.New(maxSources)}
}

func (g *throttle) stateOf(source types.UID) *sourceState {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := g.states.Get(source); ok {
		return s.(*sourceState)
	}
	s := &sourceState{limiter: rate.NewLimiter(rate.Every(minInterval), burst), seen: lru.New(maxRemembered)}
	g.states.Add(source, s)
	return s
}

// admit calls start, which requests a reconcile, unless the request is a duplicate. Beyond the
// rate, and if start fails, it calls start later, once for all pushes until then. If a retry of
// start cannot succeed, the result is failed and the sender has to send the request again. A nil id
// is never a duplicate.
func (g *throttle) admit(source types.UID, id *[32]byte, start func(context.Context) error) result {
	s := g.stateOf(source)
	s.mu.Lock()
	now := g.clock.Now()
	if id != nil {
		if at, ok := s.seen.Get(*id); ok && now.Sub(at.(time.Time)) < dedupWindow {
			s.mu.Unlock()
			return duplicate
		}
		s.seen.Add(*id, now)
	}
	if s.pending {
		s.mu.Unlock()
		return coalesced
	}
	wait := s.limiter.ReserveN(now, 1).DelayFrom(now)
	s.pending = wait > 0
	s.mu.Unlock()
	if wait == 0 {
		switch err := start(g.ctx); {
		case err == nil:
			return accepted
		case isTerminal(err):
			if id != nil {
				s.seen.Remove(*id) // a repetition of the request counts as new
			}
			return failed
		}
		if wait = s.scheduleRetry(g.clock.Now()); wait == 0 {
			return coalesced
		}
	}
	g.waiting.Go(func() { g.startLater(s, wait, start) })
	return coalesced
}

// scheduleRetry returns the delay before start is retried; 0 if another call is pending already.
func (s *sourceState) scheduleRetry(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending {
		return 0
	}
	s.pending = true
	return max(minInterval, s.limiter.ReserveN(now, 1).DelayFrom(now))
}

// isTerminal reports whether the API server will reject the request on every retry.
func isTerminal(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// startLater calls start after a delay, and retries until it succeeds, fails terminally, or the
// process ends.
func (g *throttle) startLater(s *sourceState, wait time.Duration, start func(context.Context) error) {
	for {
		timer := g.clock.NewTimer(wait)
		select {
		case <-g.ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		s.mu.Lock()
		s.pending = false // pushes from now on are not covered by this call
		s.mu.Unlock()
		err := start(g.ctx)
		if isTerminal(err) {
			s.seen.Clear() // senders may send the coalesced pushes again
		}
		if err == nil || isTerminal(err) {
			return
		}
		if wait = s.scheduleRetry(g.clock.Now()); wait == 0 {
			return
		}
	}
}
