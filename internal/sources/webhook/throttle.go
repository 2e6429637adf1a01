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

// Bounds of what senders that know a token may start.
const (
	// burst is how many pushes of a source start a look at once, when there were
	// none for a while; then it is one each every.
	burst = 20
	every = 3 * time.Second
	// remembered is how many requests of a source are known again, and rememberFor
	// how long: a push back to a commit, and one that a person sends again, count.
	remembered  = 256
	rememberFor = time.Minute
	// maxSources bounds the memory: the state of those that had no push for longest goes.
	maxSources = 10_000
)

// gate lets each request through once, and not too many.
type gate struct {
	clock clock.Clock
	// ctx ends what waits, and waiting counts it.
	ctx     context.Context
	waiting sync.WaitGroup
	states  *lru.Cache // *state by types.UID
	mu      sync.Mutex // while a state is made
}

// state of one source.
type state struct {
	rate *rate.Limiter
	mu   sync.Mutex
	seen *lru.Cache // time.Time by identity
	// gathering is true while a look is to come, for all pushes until then.
	gathering bool
}

func newGate(ctx context.Context, c clock.Clock) *gate {
	return &gate{clock: c, ctx: ctx, states: lru.New(maxSources)}
}

func (g *gate) of(source types.UID) *state {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := g.states.Get(source); ok {
		return s.(*state)
	}
	s := &state{rate: rate.NewLimiter(rate.Every(every), burst), seen: lru.New(remembered)}
	g.states.Add(source, s)
	return s
}

// pass starts a look, unless the request was seen just now. Beyond the rate, and when
// it could not be started, it is started later, once for all that came meanwhile;
// and failed, and to be sent again, where that would not help. A nil identity is
// never known again.
func (g *gate) pass(source types.UID, identity *[32]byte, start func(context.Context) error) result {
	s := g.of(source)
	s.mu.Lock()
	now := g.clock.Now()
	if identity != nil {
		if at, ok := s.seen.Get(*identity); ok && now.Sub(at.(time.Time)) < rememberFor {
			s.mu.Unlock()
			return seen
		}
		s.seen.Add(*identity, now)
	}
	if s.gathering {
		s.mu.Unlock()
		return gathered
	}
	wait := s.rate.ReserveN(now, 1).DelayFrom(now)
	s.gathering = wait > 0
	s.mu.Unlock()
	if wait == 0 {
		switch err := start(g.ctx); {
		case err == nil:
			return accepted
		case final(err):
			s.forget(identity)
			return failed
		}
		if wait = s.retry(g.clock.Now()); wait == 0 {
			return gathered
		}
	}
	g.waiting.Go(func() { g.later(s, wait, start) })
	return gathered
}

// retry says how long a look that failed has to wait; 0 if another is to come.
func (s *state) retry(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gathering {
		return 0
	}
	s.gathering = true
	return max(every, s.rate.ReserveN(now, 1).DelayFrom(now))
}

// final is true for what the API server won't take however often it is asked.
func final(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// forget lets a request through when it comes again.
func (s *state) forget(identity *[32]byte) {
	if identity != nil {
		s.seen.Remove(*identity)
	}
}

// later starts a look after a while, until that succeeds or can't, or the process ends.
func (g *gate) later(s *state, wait time.Duration, start func(context.Context) error) {
	for {
		timer := g.clock.NewTimer(wait)
		select {
		case <-g.ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		s.mu.Lock()
		s.gathering = false // what comes from now on is not in this look
		s.mu.Unlock()
		err := start(g.ctx)
		if final(err) {
			s.seen.Clear() // whatever was gathered may be sent again
		}
		if err == nil || final(err) {
			return
		}
		if wait = s.retry(g.clock.Now()); wait == 0 {
			return
		}
	}
}
