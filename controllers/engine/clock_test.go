package engine

import (
	"errors"
	"testing"
	"time"
)

// When the clock is set forward, back-offs expire. When it is set back, they do not last until the
// clock reaches the earlier time again.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{"a year forward": 365 * 24 * time.Hour,
		"a year back": -365 * 24 * time.Hour, "an hour back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			s, c, now := &backoffs{}, &corrections{}, noon
			s.record("me", "a", backoff{start: now, retryAt: now.Add(time.Hour), err: errors.New("no")})
			for range maxCorrections {
				c.add("me", "b", now)
			}
			if backoffMessage(s, "me", "a", "", now) == "" || !c.tooMany("me", "b", now) {
				t.Fatal("not backed off before the clock jumps")
			}
			now = now.Add(jump)
			if at, errs := s.nextRetry("me", now, nil); !at.IsZero() || errs != nil {
				t.Errorf("waits until %s for %v", at, errs)
			}
			if got := backoffMessage(s, "me", "a", "", now); got != "" {
				t.Errorf("still backed off: %s", got)
			}
			if c.tooMany("me", "b", now) {
				t.Error("corrections before the jump are counted")
			}
			for range maxCorrections {
				c.add("me", "b", now)
			}
			if !c.tooMany("me", "b", now) {
				t.Error("corrections after the jump are not counted")
			}
		})
	}
}

// A pass reads the clock once, before it records a back-off.
func TestBackoffIsActiveInThePassThatRecordedIt(t *testing.T) {
	s := &backoffs{}
	s.record("me", "a", backoff{start: noon, retryAt: noon.Add(time.Hour), err: errors.New("no")})
	if backoffMessage(s, "me", "a", "", noon.Add(-time.Second)) == "" {
		t.Error("an earlier reading of the clock ended it")
	}
}
